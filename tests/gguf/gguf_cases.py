"""Models, plans and texts for the tests of the export to llama.cpp."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
import pytest

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.exporting.exported import Exported
from ropewalk.gguf import llama_cpp_run
from ropewalk.models.config import BUNDLED_FOLDER, present_plan
from ropewalk.scaling import linear, ntk, ntk_mixed, yarn
from ropewalk.schedule import RotarySchedule
from tests.models.tiny import model_of, tiny_config

Given = ParamSpec("Given")
TARGET = 4096
FOUND = Path(__file__).parents[1] / "exporting" / "searched.json"
"""What `ropewalk search bundled --to 2k -o tests/exporting/searched.json` found."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def searched(start: RotarySchedule, length: int = TARGET) -> RotarySchedule:
    """What a search may find: near YaRN, of no method's shape, and with an m of its own."""
    found = yarn.schedule(start, length)
    jitter = np.exp(np.random.default_rng(0).normal(0, 0.03, start.geometry.pairs))
    return replace(
        found,
        rescale_factors=np.sort(found.rescale_factors * jitter),
        attention_scaling=found.attention_scaling * 0.98,
        recipe=(),
    )


SCHEDULES: dict[str, Callable[[RotarySchedule], RotarySchedule]] = {
    "plain": lambda start: start,
    "linear": lambda start: linear.schedule(start, TARGET),
    "ntk": lambda start: ntk.schedule(start, TARGET),
    "yarn": lambda start: yarn.schedule(start, TARGET),
    "ntk_mixed": lambda start: ntk_mixed.schedule(start, TARGET),
    "searched": searched,
}


def start_of(folder: Path = BUNDLED_FOLDER) -> RotarySchedule:
    return present_plan(folder).longest()


def plan_of(schedule: RotarySchedule, length: int = TARGET) -> ContextPlan:
    return ContextPlan("a model", {FULL_ATTENTION: (PlanStep(length, schedule),)})


def named_plan(name: str, folder: Path = BUNDLED_FOLDER) -> ContextPlan:
    return plan_of(SCHEDULES[name](start_of(folder)))


def unproven(export: Callable[Given, Exported]) -> Callable[Given, Exported]:
    """An export without its comparison, as on a machine without llama.cpp."""

    def run(*args: Given.args, **kwargs: Given.kwargs) -> Exported:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(llama_cpp_run, "available", lambda: False)
            return export(*args, **kwargs)

    return run


def bundled_folder(path: Path, **tokenizer: Any) -> Path:
    """The bundled model, its tokenizer changed in these parts."""
    shutil.copytree(BUNDLED_FOLDER, path)
    edit_json(path / "tokenizer.json", **tokenizer)
    return path


def tiny_folder(path: Path, family: str = "llama", *, shards: bool = False, **changes: Any) -> Path:
    """A tiny model of random weights, with the bundled model's tokenizer."""
    config = tiny_config(family, **{"vocab_size": 1056, "hidden_size": 64, **changes})
    model_of(config).save_pretrained(path, max_shard_size="100KB" if shards else "5GB")
    for name in TOKENIZER_FILES:
        shutil.copyfile(BUNDLED_FOLDER / name, path / name)
    return path


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")
