"""Methods by name, over schedules and whole plans."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InputError, InvalidValue, UnknownName, Unsupported
from ropewalk.planning.extension import chosen_layers, extend, extend_plan
from ropewalk.scaling import dynamic_ntk, names, ntk, rebuild
from ropewalk.schedule import LogN, Recipe, RotaryGeometry, RotarySchedule

LLAMA2 = RotarySchedule.plain(RotaryGeometry(128, 128, 10000.0, 4096))
PRESENT = ContextPlan(
    "llama",
    {FULL_ATTENTION: (PlanStep(4096, LLAMA2),), "sliding_attention": (PlanStep(4096, LLAMA2),)},
)


def test_each_method_of_a_chain_takes_its_own_parameters() -> None:
    given = {"beta_fast": 16.0, "high_freq_factor": 8.0, "factor": 2.0}
    chained = extend(LLAMA2, 8192, "yarn+llama3", given)
    yarn, llama3 = chained.recipe
    assert yarn.parameters["beta_fast"] == 16.0
    assert llama3.parameters["high_freq_factor"] == 8.0
    assert rebuild(chained.recipe, LLAMA2.geometry) == chained


@pytest.mark.parametrize(
    ("methods", "given", "told"),
    [
        ("base_change+yarn", {"base": 5e6}, "plan with yarn alone and give it the base"),
        ("base_change+ntk", {"base": 5e6}, "plan with ntk alone and give it the base"),
        ("linear+linear", {}, "leave it out (`method`: linear)"),
        ("yarn+llama3", {}, "leave it out (`method`: yarn)"),
        ("yarn+resonance+linear", {}, "leave it out (`method`: yarn+resonance)"),
    ],
)
def test_a_step_that_changes_nothing_is_an_error(
    methods: str, given: dict[str, object], told: str
) -> None:
    with pytest.raises(InputError, match=rf"changes nothing after .*{re.escape(told)}"):
        extend(LLAMA2, 8192, methods, given)


@pytest.mark.parametrize("method", ["yarn", "ntk"])
def test_another_base_under_a_method_is_that_of_a_model_with_it(method: str) -> None:
    """Wang et al. 2024, Tables 2 and 4: NTK and YaRN on raised bases."""
    other = RotarySchedule.plain(replace(LLAMA2.geometry, base=5e6))
    ours, theirs = extend(LLAMA2, 65536, method, {"base": 5e6}), extend(other, 65536, method)
    np.testing.assert_allclose(ours.inverse_frequencies, theirs.inverse_frequencies, rtol=1e-14)
    assert ours.attention_scaling == theirs.attention_scaling
    assert rebuild(ours.recipe, LLAMA2.geometry) == ours
    assert extend(LLAMA2, 65536, method, {"base": None}) == extend(LLAMA2, 65536, method)


def test_a_parameter_that_no_method_of_the_chain_has_lists_those_they_have() -> None:
    with pytest.raises(UnknownName, match="'beta_fast'; valid: b"):
        extend(LLAMA2, 8192, "ntk_mixed+resonance", {"beta_fast": 16.0})
    with pytest.raises(UnknownName) as caught:
        extend(LLAMA2, 8192, "llama3+yarn", {"beta": 1})
    assert {"low_freq_factor", "beta_fast"} <= set(caught.value.valid)


def test_a_plan_changes_the_named_layers_and_keeps_the_others() -> None:
    plan = extend_plan(PRESENT, 16384, "ntk")
    assert plan.target_length == 16384
    assert plan.longest() == ntk.schedule(LLAMA2, 16384)
    assert plan.longest("sliding_attention") == LLAMA2
    with pytest.raises(Unsupported, match="of type chunked_attention, only full_attention"):
        extend_plan(PRESENT, 16384, "ntk", layer_types=["chunked_attention"])


def test_unless_layers_are_named_those_are_extended_that_see_the_whole_context() -> None:
    assert chosen_layers(PRESENT, None) == (FULL_ATTENTION,)
    assert chosen_layers(PRESENT, ["sliding_attention"]) == ("sliding_attention",)
    only = ContextPlan("mistral", {"sliding_attention": (PlanStep(4096, LLAMA2),)})
    assert extend_plan(only, 16384, "ntk").longest("sliding_attention").method == "ntk"
    steps = only.steps("sliding_attention")
    two = ContextPlan("odd", {"sliding_attention": steps, "chunked_attention": steps})
    with pytest.raises(Unsupported, match=r"no full attention.*name the layer type to extend"):
        extend_plan(two, 16384, "ntk")


def test_a_method_by_length_becomes_a_ladder() -> None:
    plan = extend_plan(PRESENT, 20000, "dynamic_ntk", {"factor": 2.0})
    assert [step.up_to_length for step in plan.steps()] == [4096, 8192, 16384, 20000]
    assert plan.steps()[0].schedule == LLAMA2
    for step in plan.steps()[1:]:
        assert step.schedule == dynamic_ntk.schedule(LLAMA2, step.up_to_length, factor=2.0)


def test_log_n_starts_from_the_length_that_the_model_serves() -> None:
    longest = extend_plan(PRESENT, 16384, "linear", log_n="beyond").longest()
    assert longest.log_n == LogN("beyond", 4096)


def test_from_original_starts_again_from_the_plain_schedule() -> None:
    once = extend_plan(PRESENT, 8192, "linear")
    with pytest.raises(Unsupported, match="`from_original`"):
        extend_plan(extend_plan(once, 16384, "ntk_mixed"), 32768, "yarn")
    again = extend_plan(once, 32768, "yarn", from_original=True)
    assert again.longest() == extend_plan(PRESENT, 32768, "yarn").longest()


@pytest.mark.parametrize("chain", ["yarn+yarn", "two_band+yarn", "llama3+yarn"])
def test_a_method_that_cannot_follow_another_blames_the_chain_not_the_model(chain: str) -> None:
    with pytest.raises(InputError, match=r"yarn needs plain.*cannot follow \w+; name it first"):
        extend(LLAMA2, 8192, chain)


PLAIN = ContextPlan("llama", {FULL_ATTENTION: (PlanStep(4096, LLAMA2),)})


@pytest.mark.parametrize(
    ("methods", "parameters"),
    [
        *((name, {}) for name in names() if name not in ("base_change", "longrope", "resonance")),
        ("base_change", {"base": 1e6}),
        ("longrope", {"factors": [2.0] * 64}),
        ("yarn+resonance", {}),
    ],
)
def test_every_method_keeps_initial_positions(methods: str, parameters: dict[str, object]) -> None:
    plan = extend_plan(PLAIN, 32768, methods, parameters, kept_initial_positions=16)
    usual = extend_plan(PLAIN, 32768, methods, parameters)
    for step, other in zip(plan.steps(), usual.steps(), strict=True):
        assert step.schedule == replace(other.schedule, kept_initial_positions=16)
        plain = RotarySchedule.plain(step.schedule.geometry)
        assert (step.schedule.angles([3, 15]) == plain.angles([3, 15])).all()
        assert (step.schedule.angles([16]) == other.schedule.angles([16])).all()


@pytest.mark.parametrize("kept", [-1, 32768, 2**70, 1.5, True, "4"])
def test_initial_positions_are_a_number_below_the_target(kept: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^kept_initial_positions = "):
        extend_plan(PLAIN, 32768, "linear", kept_initial_positions=kept)


def test_a_kept_number_goes_on_and_can_be_taken_back() -> None:
    kept = extend_plan(PLAIN, 8192, "linear", kept_initial_positions=16)
    assert extend_plan(kept, 16384, "linear").longest().kept_initial_positions == 16
    back = extend_plan(kept, 16384, "linear", kept_initial_positions=0)
    assert back.longest().kept_initial_positions == 0
    within = extend_plan(kept, 6144, "longrope", {"factors": [1.0] * 64, "recover": True})
    assert within.longest().kept_initial_positions == 16


def test_an_old_plan_has_the_number_in_its_recipe() -> None:
    found = extend_plan(PLAIN, 8192, "longrope", {"factors": [2.0] * 64}).longest()
    for kept in (None, 0, 4):
        [step] = found.recipe
        old = Recipe(step.method, {**step.parameters, "kept_initial_positions": kept})
        again = rebuild([old], LLAMA2.geometry)
        assert again == replace(found, kept_initial_positions=kept or 0)
