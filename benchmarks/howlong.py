"""Does `howlong` find the length that a full sweep finds, and why a server is shorter than it says?

    python -m benchmarks.howlong            two hours of one core; --report runs nothing

**Set-ups.** The three bundled models under YaRN to four times their window, in process, and the
first of them in the real llama.cpp: healthy in two types, and with the ten faults of `FAULTS`.
SmolLM2-135M-Instruct is asked once, where its folder is there (`make real`).

**A sweep** reads as many documents as a verdict may, 64, of every length. Its length is that of
`bounds` over all of them. It has another seed, so that no document serves both, and the degree of
questions that `howlong` chose. A server is swept with the same fault.

**The rule**, committed before the first run: `howlong`, which has the right model's fingerprint at
hand, names the planted cause first for at least 8 of the 10 faults and none for the healthy
servers; its length is within one step of the sweep's in every set-up; and it reads at most a
quarter of the tokens of the sweep.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache as once
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from benchmarks import fingerprint as served
from benchmarks.cells import lines, run_missing
from benchmarks.fingerprint import Setup, cache, gateway
from benchmarks.llama_server import serving
from docs.figures import paragraph
from ropewalk.api.fingerprint import fingerprint
from ropewalk.api.howlong import howlong
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.data.documents import as_documents
from ropewalk.evaluation.usable.documents import DEGREES, Library
from ropewalk.evaluation.usable.readers import reading, subject_of
from ropewalk.evaluation.usable.request import WITHIN, HowLong
from ropewalk.evaluation.usable.result import UsableLength
from ropewalk.evaluation.usable.search import MOST, bounds, following, reference_of, steps
from ropewalk.evaluation.verdict import JUDGED_FROM, Shares, look
from ropewalk.exporting.llama_cpp import export
from ropewalk.models.config import BUNDLED_FOLDERS, present_plan
from ropewalk.models.source import Loading
from ropewalk.planning.extension import extend
from ropewalk.progress import silent, unheard
from studies.smollm2 import model as smollm2
from tests.gguf.gguf_cases import unproven

RESULTS = Path(__file__).with_name("results") / "howlong.jsonl"
PAGE = "docs/howlong.md"
TARGET = 2048
MODELS = ("bundled", "bundled:2", "bundled:3")
KEPT = 700
"""The tokens that a gateway leaves of a prompt."""
SWEPT = 1
"""The seed of a sweep."""
KNOWN, KNOWN_CLAIMS = "SmolLM2-135M-Instruct", 8192
"""A published model as it is, and the length that it claims; its sweep would take three hours."""


# Simulated models: how often the stated interval holds the true length.
CURVES = {
    "falls at once at 48k": (50e3, 8.0),
    "falls slowly from 48k": (50e3, 2.0),
    "falls at 20k": (20e3, 3.0),
    "falls at 100k": (1e5, 3.0),
    "falls at 9k": (9e3, 4.0),
    "does not fall": (1e9, 2.0),
}
"""By name, the length at which a model answers ten points less than at once, and how steeply."""
CLAIMED, RUNS, ALIKE = 131072, 200, 0.02
"""What they claim; runs of each; and how alike the facts of a document are."""
BEST = 0.95


def setups() -> dict[str, Setup]:
    """The servers, by the name of what is wrong with them."""
    start = present_plan(BUNDLED_FOLDERS["bundled"]).longest()
    own = extend(start, TARGET, "yarn")
    half = replace(extend(start, TARGET // 2, "yarn"), length=TARGET)
    made = (
        Setup("healthy, F16", own, "F16"),
        Setup("healthy, Q8_0", own, "Q8_0"),
        Setup("a context of half", own, settings={"n_ctx": TARGET // 2}, cause="context"),
        Setup("YaRN is lost", replace(start, length=TARGET), cause="no scaling"),
        Setup("cache Q4_0", own, settings=cache("Q4_0"), cause="cache"),
        Setup("a template (gateway)", own, gateway=served._templated, cause="template"),
        Setup("base 500,000 (flag)", own, settings={"rope_freq_base": 5e5}, cause="base"),
        Setup("prompts are cut (gateway)", own, gateway=_cut, cause="truncation"),
        Setup("prompts are cut, and counted as sent", own, gateway=_cut, cause="truncation"),
        Setup("half the factor", half, cause="factor"),
        Setup("linear instead", extend(start, TARGET, "linear"), cause="another method"),
        Setup("a second BOS (gateway)", own, gateway=served._more_bos, cause="bos"),
    )
    return {setup.name: setup for setup in made}


def _cut(prompt: Any) -> Any:
    """The last tokens of a prompt, of text as of tokens."""
    if isinstance(prompt, list):
        return prompt[-KEPT:]
    words = _words()
    ids = words.encode(prompt, add_special_tokens=False).ids
    return prompt if len(ids) <= KEPT else words.decode(ids[-KEPT:], skip_special_tokens=False)


def _sent(prompt: Any) -> int:
    """The tokens of a prompt, with the BOS that the server puts before text."""
    return len(prompt) if isinstance(prompt, list) else len(_words().encode(prompt).ids)


def _words() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(BUNDLED_FOLDERS["bundled"] / "tokenizer.json"))


FAULTS = tuple(name for name, setup in setups().items() if setup.cause)
CELLS = (
    *(("coverage", name) for name in CURVES),
    *((kind, name) for kind in ("howlong", "sweep") for name in MODELS),
    *((kind, name) for kind in ("howlong", "sweep") for name in setups()),
    *((("howlong", KNOWN),) if smollm2.FOLDER.exists() else ()),
)


def _folder(model: str, place: Path) -> Path:
    """A copy of a bundled model whose config states YaRN to the target."""
    folder = place / model.replace(":", "-")
    if not folder.exists():
        shutil.copytree(BUNDLED_FOLDERS[model], folder)
        file = folder / "config.json"
        config = json.loads(file.read_text("utf-8"))
        window = config["max_position_embeddings"]
        own = config.pop("rope_parameters", None) or {"rope_theta": config.get("rope_theta")}
        config["rope_parameters"] = {
            **{key: value for key, value in own.items() if key == "rope_theta"},
            "rope_type": "yarn",
            "factor": TARGET / window,
            "original_max_position_embeddings": window,
        }
        config["max_position_embeddings"] = TARGET
        file.write_text(json.dumps(config), "utf-8")
    return folder


@contextmanager
def _asked(name: str, place: Path) -> Iterator[tuple[str, Path | None]]:
    """The model's folder; or a server's address, and the folder of the model it should run."""
    if name in (*MODELS, KNOWN):
        yield str(smollm2.FOLDER if name == KNOWN else _folder(name, place)), None
        return
    setup, file = setups()[name], place / "served.gguf"
    steps_of = (PlanStep(TARGET, replace(setup.schedule, length=TARGET)),)
    plan = ContextPlan("bundled", {FULL_ATTENTION: steps_of})
    unproven(export)("bundled", plan, file, dtype=setup.dtype, overwrite=True)
    with ExitStack() as stack:
        settings: dict[str, Any] = {"n_ctx": TARGET, **setup.settings}
        address = stack.enter_context(serving(file, **settings))
        if setup.gateway is not None:
            count = _sent if "counted as sent" in name else None
            address = stack.enter_context(gateway(address, setup.gateway, count))
        yield address, _fingerprint()


@once
def _fingerprint() -> Path:
    """That of the right model, made once; a file, as a user makes it on another machine."""
    place = Path(mkdtemp())
    file = place / "fingerprint.json"
    own = fingerprint(_folder("bundled", place), progress=None, notice=unheard)
    file.write_text(own.dumps(), encoding="utf-8")
    return file


def work(cell: tuple[str, str]) -> dict[str, Any]:
    """One cell: what `howlong` says, or the sweep of the same set-up."""
    kind, name = cell
    if kind == "coverage":
        return {"cell": cell, **covered(name)}
    with TemporaryDirectory() as place, _asked(name, Path(place)) as (model, against):
        if kind == "howlong":
            found = howlong(model, against=against, progress=None, notice=unheard)
            return {"cell": cell, **_told(found)}
        return {"cell": cell, **_swept(model, name)}


def _told(found: UsableLength) -> dict[str, Any]:
    low, value, high = found.bounds
    return {
        "degree": found.asked,
        "facts": found.facts,
        "works": low,
        "value": value,
        "fails": high,
        "causes": [[cause.name, cause.told, cause.certain] for cause in found.causes],
        "tokens": found.tokens,
        "rates": {str(r.length): [round(r.rate.value, 4), r.documents] for r in found.readings},
        "line": found.summary(),
    }


def _swept(model: str, name: str) -> dict[str, Any]:
    """Every length, with the most documents of each."""
    [before] = [each for each in lines(RESULTS) if each["cell"] == ["howlong", name]]
    documents = as_documents("held-out", "text", unheard)
    asked = HowLong(
        *(model, documents, None, None, None, None, SWEPT, None, None, 600.0),
        *(Loading("auto", "auto", False), False, silent, unheard),
    )
    subject = subject_of(asked)
    degree = next(each for each in DEGREES if each.name == before["degree"])
    lengths = _grid(name)
    shares: dict[int, Shares] = {}
    tokens = 0
    with reading(asked, subject, TARGET) as reader:
        library = Library(documents, subject.small, SWEPT, reader.count)
        for length in lengths:
            read = [
                reader.answers(
                    *(degree.name, length, number),
                    library.document(degree, length, number, before["facts"]),
                )
                for number in range(MOST)
            ]
            tokens += sum(each.tokens for each in read if not each.refused)
            own = [each.share for each in read]
            shares[length] = Shares(own, before["facts"], list(range(MOST)))
    short = shares.pop(lengths[0])
    low, value, high = bounds(lengths[0], {n: look(own, short) for n, own in shares.items()})
    rates = {str(n): round(own.rate, 4) for n, own in {lengths[0]: short, **shares}.items()}
    return {"works": low, "value": value, "fails": high, "tokens": tokens, "rates": rates}


def _grid(name: str) -> tuple[int, ...]:
    """The short length of a set-up, and those above it."""
    if name == KNOWN:
        short, longest = reference_of(KNOWN_CLAIMS, small=False), KNOWN_CLAIMS
    else:
        short, longest = reference_of(TARGET, small=True, window=512), TARGET
    return (short, *steps(short, longest))


def covered(name: str) -> dict[str, Any]:
    """How many runs of a curve state an interval that holds the true length."""
    rate = partial(_rate, *CURVES[name])
    short = reference_of(CLAIMED, small=False)
    grid = (short, *steps(short, CLAIMED))
    true = max(n for n in range(short, CLAIMED + 1, 64) if rate(n) >= rate(short) - 0.1)
    place = grid.index(max(n for n in grid if n <= true))
    right = near = 0
    spent = 0.0
    for seed in range(RUNS):
        low, value, high, part = _simulated(rate, seed)
        right += low <= true and (high is None or true < high)
        near += abs(grid.index(value) - place) <= 1
        spent += part / RUNS
    return {"true": true, "right": right, "near": near, "spent": round(spent, 3)}


def _rate(crossing: float, power: float, length: int) -> float:
    return float(BEST / (1 + 0.1 / (BEST - 0.1) * (length / crossing) ** power))


def _simulated(rate: Any, seed: int) -> tuple[int, int, int | None, float]:
    drawn, short = random.Random(seed), reference_of(CLAIMED, small=False)

    def shares(length: int, count: int) -> list[float]:
        chance, alike = rate(length), 1 / ALIKE - 1
        own = [drawn.betavariate(chance * alike, (1 - chance) * alike) for _ in range(count)]
        return [sum(drawn.random() < each for _ in range(8)) / 8 for each in own]

    lengths = steps(short, CLAIMED)
    most = MOST * (short + sum(lengths))
    first = Shares(shares(short, WITHIN), 8, range(WITHIN))
    seen: dict[int, Shares] = {}
    spent = WITHIN * short
    while (wanted := following(lengths, seen, first, most / 4 - spent)) is not None:
        own = list(seen[wanted.length].shares) if wanted.length in seen else []
        more = wanted.documents - len(own)
        spent += more * wanted.length
        own += shares(wanted.length, more)
        seen[wanted.length] = Shares(own, 8, range(len(own)))
    return *bounds(short, {n: look(own, first) for n, own in seen.items()}), spent / most


def main() -> int:
    run_missing(__doc__ or "", RESULTS, CELLS, work, blocks)
    return 0


def blocks() -> dict[str, str]:
    return {PAGE: table()}


def table() -> str:
    found = {tuple(row["cell"]): row for row in lines(RESULTS)}
    told = [
        "| served | planted fault | `howlong` | full sweep | part of its tokens | cause named |",
        "|---|---|---|---|---|---|",
    ]
    near = quarter = named = swept = 0
    for name in (*MODELS, *setups(), KNOWN):
        grid = _grid(name)
        own, sweep = found.get(("howlong", name)), found.get(("sweep", name))
        if own is None:
            continue
        cause = setups()[name].cause if name in setups() else ""
        first = own["causes"][0][0] if own["causes"] else ""
        named += bool(cause) and first == cause
        length = "not swept"
        part = own["tokens"] / (MOST * sum(grid) if sweep is None else sweep["tokens"])
        quarter += part <= 0.25
        if sweep is not None:
            swept += 1
            apart = abs(grid.index(own["value"]) - grid.index(sweep["value"]))
            near += (
                apart <= 1 if _judged(own) and _judged(sweep) else _judged(own) == _judged(sweep)
            )
            length = _ends(sweep)
        served, fault = (
            ("llama.cpp", name) if cause else (name.replace("healthy", "llama.cpp"), "none")
        )
        told.append(
            f"| {served} | {fault} | {_ends(own)} | {length} | {part:.0%} "
            f"| {first or 'none'}{' ✓' * (first == cause)} |"
        )
    sentence = (
        f"The planted cause is named first for {named} of {len(FAULTS)} faults; the length is "
        f"within one step of the sweep's in {near} of {swept} set-ups that were swept, and at most "
        f"a quarter of a sweep's tokens are read in {quarter} of {len(told) - 2}."
    )
    return "\n".join([*told, "", paragraph(f"{sentence} {_coverage(found)}")])


def _coverage(found: dict[tuple[str, ...], dict[str, Any]]) -> str:
    rows = [row for name in CURVES if (row := found.get(("coverage", name)))]
    if not rows:
        return ""
    right = [row["right"] for row in rows]
    return (
        f"On {len(rows)} kinds of simulated models that claim 128k, {RUNS} runs each, the interval "
        f"holds the true length in {min(right) / RUNS:.0%} to {max(right) / RUNS:.0%} of runs, and "
        f"the length is within one step of it in {min(row['near'] for row in rows) / RUNS:.0%} or "
        f"more, for {min(row['spent'] for row in rows):.0%} to "
        f"{max(row['spent'] for row in rows):.0%} of the tokens of a sweep."
    )


def _judged(row: dict[str, Any]) -> bool:
    """True if enough facts are found at the short length."""
    rate = row["rates"][min(row["rates"], key=int)]
    return float(rate[0] if isinstance(rate, list) else rate) >= JUDGED_FROM


def _ends(row: dict[str, Any]) -> str:
    if not _judged(row):
        return "cannot be judged"
    return f"{row['value']:,} ({row['works']:,} to {row['fails'] or TARGET:,})"


if __name__ == "__main__":
    sys.exit(main())
