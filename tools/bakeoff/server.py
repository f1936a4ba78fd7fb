"""New faults of a server: the real llama.cpp, what it writes to its log, and the fingerprint.

    python -m tools.bakeoff.server < JOBS

A job is the `name` of a fault, empty for the healthy server. The known faults of a server are those
of `python -m benchmarks.fingerprint`, whose recorded verdicts are counted; a job with `part` and
`setup` serves one of them, only to collect what llama.cpp itself says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import fingerprint as bench
from benchmarks import llama_server
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import RopewalkError
from ropewalk.exporting.llama_cpp import export
from ropewalk.models.config import BUNDLED_FOLDERS, present_plan
from ropewalk.planning.extension import extend
from ropewalk.schedule import RotarySchedule
from tests.gguf.gguf_cases import unproven
from tools.bakeoff.forked import serve

METHODS = dict(bench.REPORTED)
WARNING_LEVEL = 2


def new(own: RotarySchedule, plain: RotarySchedule) -> dict[str, bench.Setup]:
    """How each new fault of new_faults.SERVER is made."""
    start = RotarySchedule.plain(own.geometry)
    scale = own.length / own.geometry.original_length
    yarn = {
        "rope_scaling_type": bench.YARN,
        "rope_freq_scale": 1 / scale,
        "yarn_orig_ctx": own.geometry.original_length,
    }
    base = 1.3 * own.geometry.base
    shorter = replace(extend(start, round(0.8 * own.length), "yarn"), length=own.length)

    def setup(schedule: RotarySchedule = own, **how: Any) -> bench.Setup:
        return bench.Setup("", schedule, **how)

    return {
        "": setup(),
        "1.3 times the base": setup(settings={"rope_freq_base": base}),
        "0.8 times the factor": setup(shorter),
        "beta_slow 4": setup(plain, settings={**yarn, "yarn_beta_slow": 4.0}),
        "half of YaRN": setup(plain, settings={**yarn, "yarn_ext_factor": 0.5}),
        "attention factor 1.2 times": setup(
            replace(own, attention_scaling=1.2 * own.attention_scaling)
        ),
        "cache Q4_1": setup(settings=bench.cache("Q4_1")),
        "four slots share the context": setup(settings={"n_parallel": 4}),
        "the middle of prompts is left out": setup(gateway=_middle),
        "prompts in lower case": setup(gateway=_lower),
        "the last token is left out": setup(gateway=lambda prompt: prompt[:-1]),
    }


def _middle(prompt: Any) -> Any:
    return prompt if len(prompt) <= 1000 else prompt[:500] + prompt[-500:]


def _lower(prompt: Any) -> Any:
    if isinstance(prompt, str):
        return prompt.lower()
    words = _tokenizer()
    return words.encode(words.decode(prompt, skip_special_tokens=False).lower()).ids


def _tokenizer() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(BUNDLED_FOLDERS["bundled"] / "tokenizer.json"))


class Benches:
    """The fingerprint of each model, made once, and schedules without one."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp())
        self.made: dict[str, bench.Bench] = {}

    def of(self, model: str) -> bench.Bench:
        if model not in self.made:
            self.made[model] = bench.Bench(model, METHODS[model], bench.TARGET, 0, self.place)
        return self.made[model]


def log_of(model: str, setup: bench.Setup, place: Path) -> list[str]:
    """The warnings and errors of a llama.cpp that starts and answers one prompt."""
    file = place / "said.gguf"
    step = replace(setup.schedule, length=bench.TARGET)
    plan = ContextPlan(model, {FULL_ATTENTION: (PlanStep(bench.TARGET, step),)})
    folder = bench._folder(model, setup.folder, place)
    unproven(export)(folder, plan, file, dtype=setup.dtype, overwrite=True)
    asked = {"path": str(file), **llama_server.DEFAULTS, "verbosity": WARNING_LEVEL}
    asked |= {"n_ctx": bench.TARGET, **setup.settings}
    with (place / "log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", llama_server.__file__, json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        if address := process.stdout.readline().strip():
            prompt: Any = list(range(3, 103)) * 20
            if setup.gateway:
                prompt = setup.gateway(prompt)
            body = json.dumps({"prompt": prompt, "max_tokens": 1}).encode()
            kind = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{address}/v1/completions", body, kind)
            try:
                urllib.request.urlopen(request, timeout=300).read()
            except urllib.error.HTTPError as error:
                log.write(f"E refused: {error.code} {error.read()[:300]!r}\n")
        time.sleep(0.2)
        process.kill()
        process.wait()
        log.seek(0)
        lines = log.read().splitlines()
    return [line for line in lines if line.strip()]


def judged(benches: Benches) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Serves one fault."""

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        model = asked.get("model", "bundled")
        with tempfile.TemporaryDirectory() as place:
            if "part" in asked:
                start = present_plan(BUNDLED_FOLDERS[model]).longest()
                planned = extend(start, bench.TARGET, METHODS[model])
                made = bench.PARTS[asked["part"]](planned, replace(start, length=bench.TARGET))
                setup = next(s for s in made if s.name == asked["setup"])
                return {"error": "", "log": log_of(model, setup, Path(place))}
            own = benches.of(model)
            setup = new(own.own, own.plain)[asked["name"]]
            said: dict[str, Any] = {"error": "", "log": log_of(model, setup, Path(place))}
            try:
                row = bench._row(model, METHODS[model], setup, own.check(setup))
            except RopewalkError as error:
                return {**said, "refused": str(error)}
        return {**said, "row": row}

    return run


if __name__ == "__main__":
    torch.set_num_threads(1)
    ready = Benches()
    ready.of("bundled")
    serve(judged(ready))
