"""Faults injected into a real llama.cpp, and the verdict of the plan's fingerprint on them.

    python -m benchmarks.fingerprint             about thirty minutes of one core
    python -m benchmarks.fingerprint new         or one part: calibration, healthy, faults or new

How far healthy servers are off is measured on other models, plans, seeds and prompts than those of
the table. A fault is one that can be seen at all where it moves a probe farther than any healthy
server there did, by what rounding in process does to the same probe.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from benchmarks.llama_server import serving
from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import Sentence, paragraph
from ropewalk.api.fingerprint import check_server, fingerprint
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.evaluation.served.fingerprint import MARGIN, Fingerprint, Verdict
from ropewalk.evaluation.statistics import wilson
from ropewalk.exporting.llama_cpp import export
from ropewalk.gguf.llama_cpp_run import runtime
from ropewalk.models.config import BUNDLED_FOLDERS, present_plan
from ropewalk.outputs import write_atomically
from ropewalk.planning.extension import extend
from ropewalk.schedule import RotarySchedule
from tests.gguf.gguf_cases import unproven

RESULTS = Path(__file__).with_name("results") / "fingerprint.json"
SERVING = "docs/serving.md"
TARGET = 4096
CALIBRATED = (
    ("bundled", "ntk", 2048, 101),
    ("bundled:2", "yarn", 2048, 102),
    ("bundled:3", "linear", 2048, 103),
    ("bundled:3", "yarn", 4096, 104),
)
"""Model, method, target and seed of the fingerprints on which the healthy spread is measured."""
REPORTED = (("bundled", "yarn"), ("bundled:2", "ntk_mixed"))
"""And of those in the table, at the target, with seed 0."""
YARN = "llama_rope_scaling_type.LLAMA_ROPE_SCALING_TYPE_YARN"
LINEAR = "llama_rope_scaling_type.LLAMA_ROPE_SCALING_TYPE_LINEAR"
NO_FLASH = "llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED"


def cache(kind: str) -> dict[str, object]:
    """llama.cpp's settings for a cache in a type."""
    return dict.fromkeys(("cache_type_k", "cache_type_v"), f"ggml_type.GGML_TYPE_{kind}")


Prompt = Any
"""Tokens, or a text."""


@dataclass(frozen=True)
class Setup:
    """A file, the settings that it is served with, and the gateway before the server."""

    name: str
    schedule: RotarySchedule
    dtype: str = "F32"
    settings: dict[str, object] = field(default_factory=dict)
    gateway: Callable[[Prompt], Prompt] | None = None
    folder: str = ""
    """A changed copy of the model: "tokenizer", "no BOS", "noise" or "other"."""
    cause: str = ""
    """The right name; empty for a healthy set-up."""
    listed: bool = False
    """A new fault that is exactly one of the causes or pairs that ropewalk tries."""


def healthy(own: RotarySchedule, plain: RotarySchedule) -> list[Setup]:
    made = [
        Setup("F32", own),
        Setup("F16", own, "F16"),
        Setup("BF16", own, "BF16"),
        Setup("Q8_0", own, "Q8_0"),
        Setup(
            "Q8_0, cache F32, no flash attention",
            own,
            "Q8_0",
            {**cache("F32"), "flash_attn_type": NO_FLASH},
        ),
        Setup(
            "F32, cache F32, no flash attention",
            own,
            "F32",
            {**cache("F32"), "flash_attn_type": NO_FLASH},
        ),
        Setup("F16, batches of 64", own, "F16", {"n_batch": 64, "n_ubatch": 64}),
        Setup(
            "F16, four slots, twice the context", own, "F16", {"n_parallel": 4, "n_ctx": 8 * TARGET}
        ),
        Setup("Q8_0, no prompt cache", own, "Q8_0", {"cache_prompt": False}),
    ]
    if own.method == "yarn":
        flags = {
            "rope_scaling_type": YARN,
            "rope_freq_scale": own.geometry.original_length / own.length,
            "yarn_orig_ctx": own.geometry.original_length,
        }
        made.append(Setup("F16, the plan by flags", plain, "F16", flags))
    else:
        made.append(Setup("BF16, cache BF16", own, "BF16", cache("BF16")))
    return made


def faults(own: RotarySchedule, plain: RotarySchedule) -> list[Setup]:
    geometry = own.geometry
    m, scale = own.attention_scaling, own.length / geometry.original_length

    def based(base: float) -> RotarySchedule:
        return replace(own, geometry=replace(geometry, base=base))

    def planned(ratio: float, method: str = own.method) -> RotarySchedule:
        return replace(extend(plain_start, round(own.length * ratio), method), length=own.length)

    plain_start = RotarySchedule.plain(geometry)
    made = [
        Setup("the scaling is ignored", plain, cause="no scaling"),
        Setup("base 500,000 (flag)", own, settings={"rope_freq_base": 5e5}, cause="base"),
        Setup("base 1,000,000 (flag)", own, settings={"rope_freq_base": 1e6}, cause="base"),
        Setup("twice the base", based(2 * geometry.base), cause="base"),
        Setup("1.5 times the base", based(1.5 * geometry.base), cause="base"),
        Setup("half the factor", planned(0.5), cause="factor"),
        Setup("twice the factor", planned(2.0), cause="factor"),
        Setup("1.5 times the factor", planned(1.5), cause="factor"),
        Setup("linear instead", extend(plain_start, own.length, "linear"), cause="another method"),
        Setup("NTK instead", extend(plain_start, own.length, "ntk"), cause="another method"),
        Setup(
            "linear scaling on top (flag)",
            own,
            settings={"rope_scaling_type": LINEAR, "rope_freq_scale": 1 / scale},
            cause="applied twice",
        ),
        Setup("a context of 1,024", own, settings={"n_ctx": 1024}, cause="context"),
        Setup("another tokenizer", own, folder="tokenizer", cause="tokenizer"),
        Setup("no BOS before text", own, folder="no BOS", cause="bos"),
        Setup("a second BOS (gateway)", own, gateway=_more_bos, cause="bos"),
        Setup("a template (gateway)", own, gateway=_templated, cause="template"),
        Setup("prompts cut to 1,000 tokens (gateway)", own, gateway=_cut, cause="truncation"),
        Setup("cache Q8_0", own, settings=cache("Q8_0"), cause="cache"),
        Setup("cache Q5_0", own, settings=cache("Q5_0"), cause="cache"),
        Setup("cache Q4_0", own, settings=cache("Q4_0"), cause="cache"),
        Setup("other weights", own, folder="other", cause="weights"),
        Setup("weights with 2% of noise", own, folder="noise", cause="weights"),
    ]
    if m != 1:
        made += [
            Setup(
                "no attention factor", replace(own, attention_scaling=1.0), cause="attention factor"
            ),
            Setup(
                "the attention factor twice",
                replace(own, attention_scaling=m * m),
                cause="attention factor",
            ),
            Setup(
                "1.05 times the attention factor",
                replace(own, attention_scaling=1.05 * m),
                cause="attention factor",
            ),
            Setup(
                "factors dropped, attention factor kept",
                replace(plain, attention_scaling=m),
                cause="factors dropped",
            ),
        ]
    if own.method == "yarn":
        flags = {"rope_scaling_type": YARN, "rope_freq_scale": 1 / scale}
        for length in (1024, TARGET):
            made.append(
                Setup(
                    f"original length {length:,} (flag)",
                    plain,
                    settings={**flags, "yarn_orig_ctx": length},
                    cause="original length",
                )
            )
        ramp = {**flags, "yarn_orig_ctx": geometry.original_length, "yarn_beta_fast": 8.0}
        made.append(Setup("another ramp (flag, not known)", plain, settings=ramp, cause="unknown"))
        # llama.cpp knows the file's own factors and puts its ramp on top of them.
        made.append(
            Setup(
                "YaRN on top (flag)",
                own,
                settings={**flags, "yarn_orig_ctx": geometry.original_length},
                cause="applied twice",
            )
        )
    return made


def new_faults(own: RotarySchedule, plain: RotarySchedule) -> list[Setup]:
    """Faults that took no part in choosing the causes, or the shares from which on they are named.

    The last ones are of no kind that ropewalk knows; so are two causes that are no pair of its.
    """
    geometry, m = own.geometry, own.attention_scaling
    pairs = np.arange(geometry.pairs)
    start = RotarySchedule.plain(geometry)

    def based(schedule: RotarySchedule, base: float) -> RotarySchedule:
        return replace(schedule, geometry=replace(geometry, base=base))

    def planned(ratio: float, method: str = own.method) -> RotarySchedule:
        return replace(extend(start, round(own.length * ratio), method), length=own.length)

    def factors(changed: NDArray[np.float64]) -> RotarySchedule:
        return replace(own, rescale_factors=changed, recipe=())

    half = planned(0.5)
    own_factors = own.rescale_factors
    made = [
        Setup("0.7 times the base", based(own, 0.7 * geometry.base), cause="base"),
        Setup("1.7 times the base", based(own, 1.7 * geometry.base), cause="base"),
        Setup("5 times the base", based(own, 5 * geometry.base), cause="base"),
        Setup(
            "base 100,000 (flag)", own, settings={"rope_freq_base": 1e5}, cause="base", listed=True
        ),
        Setup("0.6 times the factor", planned(0.6), cause="factor"),
        Setup("2.5 times the factor", planned(2.5), cause="factor"),
        Setup(
            "no scaling, base 500,000",
            plain,
            settings={"rope_freq_base": 5e5},
            cause="no scaling and base",
            listed=True,
        ),
        Setup(
            "half the factor, twice the base",
            based(half, 2 * geometry.base),
            cause="factor and base",
            listed=True,
        ),
        Setup(
            "half the factor, cache Q4_0",
            half,
            settings=cache("Q4_0"),
            cause="factor and cache",
            listed=True,
        ),
        Setup(
            "no scaling, cache Q4_0",
            plain,
            settings=cache("Q4_0"),
            cause="no scaling and cache",
            listed=True,
        ),
        Setup(
            "NTK instead, twice the base",
            based(planned(1, "ntk"), 2 * geometry.base),
            cause="another method and base",
        ),
        Setup(
            "keys in Q4_0, values in F16",
            own,
            settings={"cache_type_k": "ggml_type.GGML_TYPE_Q4_0"},
            cause="cache",
        ),
        Setup("weights with 4% of noise", own, folder="more noise", cause="weights"),
        Setup("pairs in another order", own, folder="pairs", cause="unknown"),
        Setup("factors moved by one pair", factors(np.roll(own_factors, 1)), cause="unknown"),
        Setup(
            "every second factor dropped",
            factors(np.where(pairs % 2, 1.0, own_factors)),
            cause="unknown",
        ),
        Setup("every factor times 1.3", factors(own_factors * 1.3), cause="unknown"),
    ]
    if m != 1:
        made += [
            Setup(
                "no attention factor, twice the base",
                replace(based(own, 2 * geometry.base), attention_scaling=1.0),
                cause="attention factor and base",
                listed=True,
            ),
            Setup(
                "no attention factor, half the factor",
                replace(half, attention_scaling=1.0),
                cause="factor and attention factor",
                listed=True,
            ),
            Setup(
                "0.95 times the attention factor",
                replace(own, attention_scaling=0.95 * m),
                cause="attention factor",
            ),
        ]
    return made


def _more_bos(prompt: Prompt) -> Prompt:
    return [0, *prompt] if isinstance(prompt, list) else f"<|begin|>{prompt}"


def _templated(prompt: Prompt) -> Prompt:
    before = [33, 55, 34, 14, 36]
    return [*before, *prompt] if isinstance(prompt, list) else f"### Question: {prompt}"


def _cut(prompt: Prompt) -> Prompt:
    return prompt[-1000:]


@contextmanager
def gateway(
    address: str, changed: Callable[[Prompt], Prompt], count: Callable[[Prompt], int] | None = None
) -> Iterator[str]:
    """A server that passes requests on, prompts changed, as gateways before real servers do.

    `count`: what it says that it read, instead of what the server behind it read.
    """
    behind = urlsplit(address)

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = json.loads(body) if body else {}
            if body:
                body = json.dumps({**asked, "prompt": changed(asked["prompt"])}).encode()
            connection = HTTPConnection(behind.hostname or "", behind.port)
            connection.request(
                self.command, self.path, body or None, {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            said = answer.read()
            if count is not None and "usage" in (value := json.loads(said)):
                value["usage"]["prompt_tokens"] = count(asked["prompt"])
                said = json.dumps(value).encode()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            connection.close()

        do_GET = do_POST = _pass_on  # noqa: N815 - the names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _folder(model: str, change: str, place: Path) -> Path:
    """The model's folder, or a changed copy."""
    source = BUNDLED_FOLDERS[model]
    if not change:
        return source
    if change == "other":
        return BUNDLED_FOLDERS["bundled:3"]
    folder = place / f"{source.name} {change}"
    if folder.exists():
        return folder
    shutil.copytree(source, folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    if change == "tokenizer":
        content["model"]["merges"] = content["model"]["merges"][:500]
    elif change == "no BOS":
        content["post_processor"] = None
    file.write_text(json.dumps(content), "utf-8")
    weights = {k: v.clone() for k, v in load_file(folder / "model.safetensors").items()}
    torch.manual_seed(0)
    if noise := {"noise": 0.02, "more noise": 0.04}.get(change):
        weights = {k: v + noise * v.std() * torch.randn_like(v) for k, v in weights.items()}
    elif change == "pairs":  # as a converter does that knows the other order
        size = json.loads((folder / "config.json").read_text("utf-8"))["head_dim"]
        for name, weight in weights.items():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                halves = weight.view(-1, 2, size // 2, weight.shape[1])
                weights[name] = halves.transpose(1, 2).reshape(weight.shape).contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


class Bench:
    """Files and fingerprints of one model and plan."""

    def __init__(self, model: str, method: str, target: int, seed: int, place: Path) -> None:
        self.model, self.place = model, place
        present = present_plan(BUNDLED_FOLDERS[model])
        start = present.longest()
        self.own = extend(start, target, method)
        self.plain = replace(start, length=target)
        self.target = target
        self.print: Fingerprint = fingerprint(model, plan=self._plan(self.own), seed=seed)

    def _plan(self, schedule: RotarySchedule) -> ContextPlan:
        served = replace(schedule, length=self.target)
        return ContextPlan(self.model, {FULL_ATTENTION: (PlanStep(self.target, served),)})

    def check(self, setup: Setup) -> Verdict:
        with ExitStack() as stack:
            file = self.place / "served.gguf"
            folder = _folder(self.model, setup.folder, self.place)
            plan = self._plan(setup.schedule)
            unproven(export)(folder, plan, file, dtype=setup.dtype, overwrite=True)
            settings: dict[str, Any] = {"n_ctx": self.target, **setup.settings}
            address = stack.enter_context(serving(file, **settings))
            if setup.gateway is not None:
                address = stack.enter_context(gateway(address, setup.gateway))
            return check_server(address, self.print, timeout=120)


PARTS = {"healthy": healthy, "faults": faults, "new": new_faults}


def main(asked: list[str]) -> int:
    torch.set_num_threads(1)
    parts = asked or ["calibration", *PARTS]
    found: dict[str, Any] = _results() if asked else {}
    found |= {
        "machine": {**machine(), "torch": torch.__version__},
        "runtime": runtime(),
        "margin": MARGIN,
        **{part: [] for part in parts},
    }
    with TemporaryDirectory() as place:
        for model, method, target, seed in CALIBRATED if "calibration" in parts else ():
            bench = Bench(model, method, target, seed, Path(place))
            for setup in healthy(bench.own, bench.plain):
                verdict = bench.check(setup)
                row = _row(model, method, setup, verdict)
                found["calibration"].append({**row, "seed": seed, "target": target})
                print(row, flush=True)
        for model, method in REPORTED if set(parts) & set(PARTS) else ():
            bench = Bench(model, method, TARGET, 0, Path(place))
            for part in parts:
                for setup in PARTS[part](bench.own, bench.plain) if part in PARTS else ():
                    row = _row(model, method, setup, bench.check(setup))
                    found[part].append(row)
                    print(row, flush=True)
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    return 0


def _row(model: str, method: str, setup: Setup, verdict: Verdict) -> dict[str, Any]:
    causes = verdict.causes
    return {
        "model": model,
        "method": method,
        "setup": setup.name,
        "right": setup.cause,
        "listed": setup.listed,
        "status": verdict.status,
        "causes": [cause.name for cause in causes],
        "certain": all(cause.certain for cause in causes),
        "told": "; ".join(cause.told for cause in causes),
        "miscounted": any(p.read != p.length for p in verdict.probes),
        "distance": float(f"{verdict.distance:.4g}"),
        "threshold": float(f"{verdict.threshold:.4g}"),
        "ratio": float(f"{ratio(verdict):.4g}"),
        "farthest": float(f"{farthest(verdict):.4g}"),
    }


def ratio(verdict: Verdict) -> float:
    """The distance as a multiple of that by rounding in process, over all probes of tokens."""
    return MARGIN * verdict.distance / verdict.threshold if verdict.threshold else 0.0


def farthest(verdict: Verdict) -> float:
    """The same of the one probe that is farthest off.

    A probe counts as rounded at least as much as probes on average: some hardly move at all.
    """
    seen = [p for p in verdict.probes if p.distance is not None and p.kind != "text"]
    if not seen:
        return 0.0
    mean = float(np.mean([p.spread for p in seen]))
    return max((p.distance or 0) / max(p.spread, mean) for p in seen)


def _results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


class _Judged:
    """Judges each fault by the results."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found
        self.spread = max(row["farthest"] for row in found["calibration"])
        self.ratio = max(row["ratio"] for row in found["calibration"])

    def moved(self, row: dict[str, Any]) -> bool:
        return bool(row["miscounted"]) or row["farthest"] > self.spread

    def named(self, row: dict[str, Any]) -> str:
        if row["status"] != "deviates":
            return ""
        names = row["causes"]
        if names == ["unknown"]:
            return "unknown"
        if names[:1] == [row["right"]]:
            return "right" if row["certain"] else "nearest"
        return "wrong" if row["certain"] else "misled"


def table() -> str:
    """A row for each outcome: the faults, and how far off the server was with each model."""
    found = _results()
    judged = _Judged(found)
    models = " and ".join(f"{model} under {method}" for model, method in REPORTED)
    rows: dict[str, list[str]] = {}
    for name in dict.fromkeys(row["setup"] for row in found["faults"]):
        own = [row for row in found["faults"] if row["setup"] == name]
        outcomes = dict.fromkeys(_outcome(judged, row) for row in own)
        off = [_off(row) for row in own if not row["miscounted"]]
        rows.setdefault(" / ".join(outcomes), []).append(
            f"{name} ({', '.join(off)})" if off else name
        )
    lines = [f"| | faults, and how far off ({models}) |", "|---|---|"]
    lines += [f"| {outcome} | {'; '.join(told)} |" for outcome, told in rows.items()]
    return "\n".join([*lines, "", _counts(judged), "", _told(judged)])


_NAMED = {
    "right": "detected, cause named",
    "nearest": "detected, its cause named as the nearest",
    "unknown": "detected, of unknown cause",
    "misled": "detected, another cause named as the nearest",
    "wrong": "detected, **another cause named**",
}


def _outcome(judged: _Judged, row: dict[str, Any]) -> str:
    if row["status"] == "deviates":
        return _NAMED[judged.named(row)]
    return "not detected" if judged.moved(row) else "not detected, within the healthy spread"


def _off(row: dict[str, Any]) -> str:
    return f"{row['ratio']:,.{0 if row['ratio'] >= 1 else 1}f}×"


def _told(judged: _Judged) -> str:
    found = judged.found
    alarms = [row for row in found["healthy"] if row["status"] != "same"]
    worst = max(row["ratio"] for row in found["healthy"])
    low, high = wilson(len(alarms), len(found["healthy"]))
    return paragraph(
        f"{len(alarms)} of {len(found['healthy'])} healthy set-ups raised an alarm (95% interval "
        f"{low:.0%} to {high:.0%}, treating set-ups as independent, although they share two "
        f"models). They deviate at most {worst:.1f} times as far as rounding in process; "
        f"{found['margin']:g} times is allowed. The margin was chosen from "
        f"{len(found['calibration'])} other healthy set-ups, which deviate at most "
        f"{judged.ratio:.1f} times. "
        f"{measured_on(found['machine'], 'python -m benchmarks.fingerprint')}, "
        f"with {found['runtime']}."
    )


def _counts(judged: _Judged) -> str:
    """A row for each kind of fault: how many were detected, and how many causes were named."""
    new = judged.found["new"]
    kinds = {
        "in the table above": judged.found["faults"],
        "new, their cause among those tried": [row for row in new if row["listed"]],
        "new, their cause not tried": [row for row in new if not row["listed"]],
    }
    columns = [
        *("faults", "all", "move a probe", "of these detected (95% interval)", "cause named"),
        *("named as the nearest", "unknown", "another named as the nearest", "another named"),
    ]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for kind, rows in kinds.items():
        moving = [row for row in rows if judged.moved(row)]
        detected = [row for row in moving if row["status"] == "deviates"]
        count = Counter(judged.named(row) for row in detected)
        low, high = wilson(len(detected), len(moving))
        named = [str(count[name]) for name in ("right", "nearest", "unknown", "misled", "wrong")]
        cells = [str(len(rows)), str(len(moving)), f"{len(detected)} ({low:.0%} to {high:.0%})"]
        lines.append(f"| {' | '.join([kind, *cells, *named])} |")
    untried = "; ".join(dict.fromkeys(row["setup"] for row in new if not row["listed"]))
    return "\n".join([*lines, "", paragraph(f"New faults whose cause is not tried: {untried}.")])


def blocks() -> dict[str, str]:
    return {PAGE: table()}


def sentences() -> list[Sentence]:
    found = _results()
    judged = _Judged(found)

    def all_are(beginning: str, *named: str) -> bool:
        rows = [row for row in found["faults"] if row["setup"].startswith(beginning)]
        return bool(rows) and all(judged.named(row) in named for row in rows)

    tried = [*found["faults"], *found["new"]]
    moving = [row for row in tried if judged.moved(row)]
    return [
        Sentence(
            SERVING,
            "every fault that moved a probe measurably was detected",
            holds=all(row["status"] == "deviates" for row in moving),
        ),
        Sentence(
            SERVING,
            "no wrong cause was named with certainty",
            holds=all(judged.named(row) != "wrong" for row in tried),
        ),
        Sentence(
            SERVING,
            "no healthy set-up raised an alarm",
            holds=all(row["status"] == "same" for row in found["healthy"]),
        ),
        Sentence(
            SERVING,
            "moves no probe beyond the healthy spread: a cache of 8 bits",
            (),
            all_are("cache Q8_0", ""),
        ),
        Sentence(
            SERVING,
            "far from all those tried: 1.5 times a base or a factor. The deviation is found",
            (),
            all_are("1.5 times", "unknown", "nearest"),
        ),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
