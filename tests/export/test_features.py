from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ropewalk.models.runtimes import RUNTIMES, loadable_by

from ropewalk.extension import extend_plan
from ropewalk.models.config import load_config, present_plan

CONFIGS = Path(__file__).parents[1] / "golden" / "configs"
ALL_BUT_LLAMA_CPP = RUNTIMES[:3]


def loads(model: str, methods: str, **parameters: Any) -> tuple[str, ...]:
    config = load_config(CONFIGS / f"{model}.json")
    plan = extend_plan(present_plan(config), 2**17, methods, parameters, from_original=True)
    return loadable_by(plan, config)


@pytest.mark.parametrize("methods", ["linear", "ntk", "yarn"])
def test_native_types_load_everywhere(methods: str) -> None:
    assert loads("llama-2-7b", methods) == RUNTIMES
    assert loads("qwen2.5-7b-instruct-yarn", methods) == RUNTIMES


def test_factors_load_in_llama_cpp_only_where_its_graph_takes_them() -> None:
    assert loads("llama-2-7b", "ntk_mixed") == RUNTIMES
    assert loads("qwen2.5-7b-instruct-yarn", "ntk_mixed") == ALL_BUT_LLAMA_CPP


def test_yarn_with_settings_of_its_own_is_beyond_llama_cpp() -> None:
    assert loads("llama-2-7b", "yarn", attention_factor=1.0) == ALL_BUT_LLAMA_CPP
    assert loads("llama-2-7b", "yarn", truncate=False) == ALL_BUT_LLAMA_CPP


def test_dynamic_scaling_is_for_transformers() -> None:
    assert loads("llama-2-7b", "dynamic_ntk") == ("transformers",)


def test_what_no_config_says_loads_nowhere() -> None:
    config = load_config(CONFIGS / "llama-2-7b.json")
    plan = extend_plan(present_plan(config), 8192, "linear")
    (step,) = plan.steps()
    kept = replace(step, schedule=replace(step.schedule, kept_initial_positions=4))
    assert loadable_by(replace(plan, schedules={"full_attention": (kept,)}), config) == ()
