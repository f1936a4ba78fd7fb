"""Gemma 3 270M at twice its window, in llama.cpp: the cells of README.md.

    make real                  the model, once, if you accept Gemma's terms
    make study NAME=gemma3     runs what is missing
    python -m studies.gemma3.measure --up-to 16k
    python -m studies.gemma3.measure --report

Finished cells are lines of cells.jsonl and are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

import ropewalk as rw
from benchmarks.machine import machine
from ropewalk.arguments import as_length
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.in_llama_cpp import FileInLlamaCpp
from ropewalk.evaluation.planted import Planted, Stretch, plant
from ropewalk.evaluation.statistics import rate_interval, t_interval
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.llama_cpp_run import Engine
from ropewalk.lengths import format_length
from ropewalk.models.source import resolve
from ropewalk.planning.extension import extend_plan
from ropewalk.records import is_main_answer
from ropewalk.run_on_disk import RunOnDisk
from studies.gemma3.model import FILE, PLACE, SHA256, ready
from studies.smollm2.cells import Mean

CELLS = Path(__file__).with_name("cells.jsonl")
PAGE = "studies/gemma3/README.md"
SEED = 0
TARGET, WINDOW, DECIDES_AT = 65536, 32768, 16384
WITHIN = (8192, DECIDES_AT, WINDOW)
EIGHT, SINGLE = "eight facts", "single facts"
COUNTS = {EIGHT: 4, SINGLE: 8}
UNMODIFIED, F16 = "none", "f16"
TASKS = ("needle", "passkey")
COMPARED, FEW, BY_CACHE = 12, 4, 6
"""The documents of a comparison at the target; of NTK, and within the window; of types of cache."""
ENOUGH = 0.7
CACHES, BY_LENGTH = (F16, "q8_0", "q4_0"), (DECIDES_AT, WINDOW)


class Wanted(NamedTuple):
    """One text under one method with one type of cache."""

    task: str
    document: int
    length: int
    method: str = UNMODIFIED
    cache: str = F16


class Answered(NamedTuple):
    """A text's answers."""

    wanted: Wanted
    right: tuple[bool, ...]
    losses: tuple[float, ...]
    """Of each answer, in nats a token; none if answers were written."""
    seconds: float
    """CPU time of llama.cpp."""
    first: float = 1.0
    """The share of the answers' tokens that are the first choice."""


def wanted() -> Iterator[Wanted]:
    """All cells in their order: those of eight facts first, the shorter before the longer."""
    for length in WITHIN:
        yield from (Wanted(EIGHT, i, length) for i in range(COUNTS[EIGHT]))
        if length in BY_LENGTH:
            for i, cache in product(range(BY_CACHE), CACHES):
                yield Wanted(EIGHT, i, length, "yarn", cache)
    for i in range(COMPARED):
        methods = ["yarn", "linear", UNMODIFIED, *(["ntk"] if i < FEW else [])]
        yield from (Wanted(EIGHT, i, TARGET, method) for method in methods)
    for length in WITHIN:
        yield from (Wanted(SINGLE, i, length) for i in range(COUNTS[SINGLE]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--up-to", default="64k", help="leave out longer texts (default: 64k)")
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.report:
        run(as_length(asked.up_to, "up_to"))
    print(blocks()[PAGE])


def run(up_to: int) -> None:
    ready()
    done = {cell.wanted for cell in kept()}
    for one in wanted():
        if one in done or one.length > up_to:
            continue
        began = _spent()
        cell = single(one) if one.task == SINGLE else eight(one)
        cell = cell._replace(seconds=round(_spent() - began, 1))
        new = not CELLS.exists()
        with CELLS.open("a", encoding="utf-8") as journal:
            if new:
                about = {**machine(), "runtime": llama_cpp_run.runtime(), "model": SHA256}
                journal.write(json.dumps(about) + "\n")
            journal.write(json.dumps(cell) + "\n")
        print(*one, f"{sum(cell.right)} of {len(cell.right)}, {cell.seconds:.0f} s", flush=True)


def _spent() -> float:
    """The CPU time of processes that were started here and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def kept() -> list[Answered]:
    if not CELLS.exists():
        return []
    lines = map(json.loads, CELLS.read_text("utf-8").splitlines()[1:])
    return [
        Answered(Wanted(*one), tuple(right), tuple(losses), *rest)
        for one, right, losses, *rest in lines
    ]


def single(one: Wanted) -> Answered:
    """One sample of `evaluate`, which a run of its own keeps."""
    sample, task = divmod(one.document, len(TASKS))
    place = PLACE / f"single-{format_length(one.length)}-{TASKS[task]}-{sample}"
    rw.evaluate(
        FILE, tasks=[TASKS[task]], lengths=[one.length], samples=1, seed=sample, run=place,
        progress=None,
    )  # fmt: skip
    [own] = [each for each in RunOnDisk.read(place).records if is_main_answer(each)]
    return Answered(one, (own.score == 1,), (), 0)


def eight(one: Wanted) -> Answered:
    """One document, read once for all of its answers."""
    source, plan = resolve(FILE), None
    if one.method != UNMODIFIED:
        plan = extend_plan(source.present_plan, TARGET, one.method)
    with FileInLlamaCpp(source, Engine(), lambda _: None) as file:
        setting = file.setting(plan, one.length, one.cache, one.method)
        llama = file.run(setting, one.length)
        document = document_of(file.encoder, one)
        # The token after an answer is asked for too: whether the model ends it.
        spans = [np.arange(own.start, own.stop + 1) for own in document.answers]
        scores = llama.scores(document.tokens.tolist(), np.concatenate(spans).tolist())
        parts = np.cumsum([len(span) for span in spans])[:-1]
        losses = [part[:-1] for part in np.split(scores.losses, parts)]
        same, right = [], []
        for span, chosen in zip(spans, np.split(scores.chosen, parts), strict=True):
            same.append(chosen[:-1] == document.tokens[span[:-1]])
            right.append(bool(same[-1].all()) and not document.goes_on(int(chosen[-1])))
    means, first = [float(each.mean()) for each in losses], float(np.concatenate(same).mean())
    return Answered(one, tuple(right), tuple(means), 0, first)


def document_of(encoder: Encoder, one: Wanted) -> Planted:
    """All held-out files joined from another one on, cut to the length, with facts."""
    texts = [document.text for document in read_documents(HELD_OUT)]
    start, tokens = one.document % len(texts), list[int]()
    for text in [*texts[start:], *texts[:start]]:
        if len(tokens) < one.length:
            tokens += encoder.pieces(text).tolist()
    stretch = Stretch(f"from file {start}", np.array(tokens[: one.length]))
    return plant(stretch, encoder, one.length, one.document, SEED)


def of(
    cells: Sequence[Answered], task: str, length: int, method: str = UNMODIFIED, cache: str = F16
) -> list[Answered]:
    asked = (task, length, method, cache)
    return [each for each in cells if (each.wanted.task, *each.wanted[2:]) == asked]


def mean(cells: Sequence[Answered], what: str) -> Mean | None:
    """Of the facts found or of the losses; answers count as independent."""
    values = [float(value) for cell in cells for value in getattr(cell, what)]
    if not values:
        return None
    ends = rate_interval(values) if what == "right" else t_interval(values)
    return Mean(float(np.mean(values)), ends, len(cells))


def paired(ours: Sequence[Answered], others: Sequence[Answered], what: str) -> Mean | None:
    """The mean difference over the documents that both have."""
    before = {cell.wanted.document: float(np.mean(getattr(cell, what))) for cell in others}
    found = [
        float(np.mean(getattr(cell, what))) - before[cell.wanted.document]
        for cell in ours
        if cell.wanted.document in before
    ]
    return Mean(float(np.mean(found)), t_interval(found), len(found)) if found else None


def row(label: str, cells: Sequence[Answered], count: int) -> str:
    found, loss = mean(cells, "right"), mean(cells, "losses")
    if found is not None and found.interval is None:
        found = None
    cost = f"{np.mean([cell.seconds for cell in cells]) / 60:.1f}" if cells else "–"
    shown = found.shown(100, ".0f", "%") if found else "too few" if cells else "not run"
    nats = "–" if loss is None else loss.shown(1, ".3f")
    return f"| {label} | {len(cells)} of {count} | {shown} | {nats} | {cost} |"


HEAD = """\
| {} | texts | facts found | loss of answers | CPU minutes a text |
|---|---|---|---|---|
"""


def gate(cells: Sequence[Answered]) -> str:
    rows = [
        row(f"{task}, {format_length(length)}", of(cells, task, length)[: COUNTS[task]], count)
        for task, count in COUNTS.items()
        for length in WITHIN
    ]
    return f"{HEAD.format('unmodified')}{chr(10).join(rows)}\n\n{passed(cells)}"


def passed(cells: Sequence[Answered]) -> str:
    """The task that the gate chose, once the first has all of its documents."""
    own = of(cells, EIGHT, DECIDES_AT)[: COUNTS[EIGHT]]
    found = mean(own, "right")
    if found is None or len(own) < COUNTS[EIGHT]:
        return "The gate is open.\n"
    told = f"Of eight facts at 16k the unmodified model finds {found.shown(100, '.0f', '%')}"
    if found.value < ENOUGH:
        return f"{told}: less than {ENOUGH:.0%}, so single facts decide.\n"
    return f"{told}: at least {ENOUGH:.0%}, so eight facts are asked beyond the window.\n"


def beyond(cells: Sequence[Answered]) -> str:
    """The comparisons of plans and types of cache."""
    rows = [
        row(
            f"64k, {method}", of(cells, EIGHT, TARGET, method), FEW if method == "ntk" else COMPARED
        )
        for method in ("yarn", "linear", UNMODIFIED, "ntk")
    ]
    rows += [
        row(
            f"{format_length(n)}, yarn, cache {kind.upper()}",
            of(cells, EIGHT, n, "yarn", kind),
            BY_CACHE,
        )
        for n, kind in product(BY_LENGTH, CACHES)
    ]
    whole = list(wanted())
    missing = len(whole) - len(set(whole) & {cell.wanted for cell in cells})
    told = [f"{missing} of {len(whole)} cells have not been run."] if missing else []
    yarn = of(cells, EIGHT, TARGET, "yarn")
    for other in ("linear", UNMODIFIED, "ntk"):
        told += _difference(f"64k, YaRN minus {other}", yarn, of(cells, EIGHT, TARGET, other))
    for n in BY_LENGTH:
        plain = of(cells, EIGHT, n, "yarn")
        told += _difference(f"{format_length(n)}, YaRN minus none", plain, of(cells, EIGHT, n))
        for kind in CACHES[1:]:
            name = f"{format_length(n)}, {kind.upper()} minus F16"
            told += _difference(name, of(cells, EIGHT, n, "yarn", kind), plain)
    lines = "\n".join(f"- {each}" for each in told)
    return HEAD.format("length and plan") + "\n".join(rows) + f"\n\n{lines}\n"


def _difference(name: str, ours: Sequence[Answered], others: Sequence[Answered]) -> list[str]:
    loss, right = paired(ours, others, "losses"), paired(ours, others, "right")
    if loss is None or right is None:
        return []
    if loss.interval is None:
        return [f"{name}: documents so far: {loss.documents}, and an interval needs five."]
    facts = right.shown(100, "+.0f")
    return [f"{name}: {loss.shown(1, '+.3f')} nats, {facts} points of the facts found."]


def blocks() -> dict[str, str]:
    cells = kept()
    return {PAGE: f"{gate(cells)}\n{beyond(cells)}"}


if __name__ == "__main__":
    main()
