"""The written-down rules of vLLM and SGLang, held against the rotary modules of released wheels.

    pip download vllm==0.33.0 sglang==0.5.23 --no-deps --dest WHEELS
    python -m tools.observatory.readings WHEELS tools/observatory/readings.json

Every config of tests/audit/corpus.py, whole or broken, is given to the engine's own rotary module
as transformers 5 hands it over, and what comes out is compared with what runtimes/ says: the
angle that each pair turns in one position, and what cos and sin are multiplied by. A module that
raises must be one that the reading says is refused.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.models.config import ConfigReader
from ropewalk.runtimes import named
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.runtimes.reading import Effective
from ropewalk.runtimes.trials.stock_rotary import stock_config
from ropewalk.schedule import RotarySchedule
from tests.audit.corpus import BROKEN, CLEAN, TARGET, TRAPPED, Config
from tools.observatory.serving_rotary import cos_sin, rotary_module, rotary_package

CLOSE = 1e-5
"""Of angles and scalings, in parts: the modules compute both in float32."""


def configs() -> Iterator[tuple[str, Config]]:
    """Those with one setting for all layers, by name."""
    for name, export in {**CLEAN, **TRAPPED}.items():
        if name != "olmo3":
            yield name, export.config
    for name, broken in BROKEN.items():
        # The engine refuses two types before it makes a rotary module.
        if broken.of != "olmo3" and name != "two rope types in vLLM":
            yield f"broken: {name}", broken.export.config


def said_by(engine: str, package: Any, config: Config) -> Effective | str:
    """What the engine's module does in a long sequence, or why it raises."""
    geometry = ConfigReader(config).geometry({"rope_theta": 1e4}, TARGET)
    try:
        stock = stock_config(config)
        handed = {**config, "rope_parameters": dict(stock.rope_parameters)}
        module = rotary_module(engine, package, handed, geometry)
        plain = RotarySchedule.plain(geometry)
        try:  # a long prompt at once: both engines then take longrope's long table
            cos, sin = cos_sin(module, plain, range(TARGET - 1))
        except IndexError:  # their tables end with the stated length
            cos, sin = cos_sin(module, plain, range(config["max_position_embeddings"] - 1))
    except Exception as error:  # whatever the engine raises for a setting that it cannot take
        return f"{type(error).__name__}: {error}"
    return Effective(TARGET, np.arctan2(sin[1], cos[1]), float(np.median(np.hypot(cos[1], sin[1]))))


def checks(engine: str, package: Any) -> Iterator[dict[str, Any]]:
    for name, config in configs():
        reading = named(engine).read(config)
        said, read = said_by(engine, package, config), reading.at(TARGET, FULL_ATTENTION)
        line: dict[str, Any] = {"config": name}
        if isinstance(said, str) or read is None:
            line |= {"raises": str(said)[:120], "refused": reading.refused}
            line["agrees"] = isinstance(said, str) and reading.refused is not None
        else:
            angles = np.abs(said.inverse_frequencies / read.inverse_frequencies - 1).max()
            scaling = abs(said.attention_scaling / read.attention_scaling - 1)
            line |= {"angles": float(angles), "scaling": float(scaling)}
            line["agrees"] = bool(angles <= CLOSE and scaling <= CLOSE)
        yield line


def main(wheels: Path, result: Path) -> int:
    torch.set_grad_enabled(False)
    torch.compiler.set_stance("force_eager")
    answer: dict[str, Any] = {}
    for engine in ENGINE_NAMES:
        (wheel,) = wheels.glob(f"{engine}-*.whl")
        with tempfile.TemporaryDirectory() as room:
            package = rotary_package(engine, wheel, Path(room), TARGET)
            lines = list(checks(engine, package))
        answer[engine] = {"version": wheel.name.split("-")[1], "checks": lines}
    result.write_text(json.dumps(answer, indent=2) + "\n", encoding="utf-8")
    wrong = 0
    for name, own in answer.items():
        agreed = [line for line in own["checks"] if line["agrees"]]
        print(f"{name} {own['version']}: {len(agreed)} of {len(own['checks'])} agree")
        for line in own["checks"]:
            if not line["agrees"]:
                wrong += 1
                print("  ", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
