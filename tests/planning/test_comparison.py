from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ropewalk.context_plan import ContextPlan
from ropewalk.models.config import present_plan
from ropewalk.planning.comparison import ranking_of
from ropewalk.planning.extension import extend_plan
from ropewalk.planning.measured import WITHOUT_TRAINING
from ropewalk.theory.coverage import coverage
from ropewalk.theory.decay import decay

CONFIGS = Path(__file__).parents[1] / "golden" / "configs"


@pytest.fixture
def llama2() -> ContextPlan:
    return present_plan(CONFIGS / "llama-2-7b.json")


def test_candidates_are_what_theory_says_of_their_plans(llama2: ContextPlan) -> None:
    found = ranking_of(llama2, 16384, parameters={"base_change": {"base": 2e6}})
    assert len(found.candidates) + len(found.refused) > 10
    for candidate in found.candidates:
        schedule = candidate.plan.longest()
        assert candidate.schedule == schedule
        assert candidate.plan.target_length == 16384
        said = decay(schedule, 16384)
        assert candidate.effective_length == said.effective_length
        assert candidate.violations == said.violations
        assert candidate.least_advantage == said.least
        angles = coverage(schedule, 16384, trained=llama2.longest())
        assert candidate.out_of_distribution_pairs == len(angles.out_of_distribution)
        assert candidate.runtimes is None, "nobody was asked"


def test_angles_that_an_extended_model_has_met_are_not_new(llama2: ContextPlan) -> None:
    present = extend_plan(llama2, 16384, "ntk")
    [linear] = [e for e in ranking_of(present, 32768).candidates if e.name == "linear"]
    assert linear.out_of_distribution_pairs == 0
    assert coverage(linear.schedule, 32768).out_of_distribution, "pretraining has not met them"


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3.1-8b", "mistral-7b-v0.3"])
def test_without_training_methods_that_keep_fast_pairs_and_meet_no_new_angle_come_first(
    name: str,
) -> None:
    present = present_plan(CONFIGS / f"{name}.json")
    found = ranking_of(
        present, 8 * present.target_length, from_original=True,
        parameters={"base_change": {"base": 1e9}},
    )  # fmt: skip
    order = [candidate.method for candidate in found.candidates]
    assert order[:2] == ["yarn", "llama3"]
    assert [each.method for each in found.candidates if each.rank][-1] == "linear"
    assert order[-1] == "drope"


@pytest.mark.parametrize("after_training", [False, True])
def test_a_method_that_needs_training_comes_last_and_says_so(
    llama2: ContextPlan, after_training: bool
) -> None:
    found = ranking_of(llama2, 16384, after_training=after_training).candidates
    assert [each.method for each in found if each.needs_training] == ["drope"]
    assert found[-1].method == "drope"
    assert found[-1].theory == "by theory, there are no positions, since no pair turns"
    assert "needs training under this plan" in found[-1].reason
    again = ranking_of(found[-1].plan, 32768).candidates
    assert not any(each.needs_training for each in again), "such a model has no positions already"


def test_each_use_has_its_order(llama2: ContextPlan) -> None:
    trained = ranking_of(llama2, 16384, after_training=True).candidates
    untrained = ranking_of(llama2, 16384).candidates
    count = sum(each.rank is not None for each in untrained)
    assert [each.rank for each in untrained][:count] == [*range(1, count + 1)]
    assert [each.rank_after_training for each in trained][:count] == [*range(1, count + 1)]
    assert {each.method: each.rank for each in trained} == {e.method: e.rank for e in untrained}


@pytest.mark.parametrize("after_training", [False, True])
def test_a_method_that_was_not_measured_says_so_and_comes_last(
    llama2: ContextPlan, after_training: bool
) -> None:
    factors = {"longrope": {"factors": (4.0,) * 64}}
    found = ranking_of(llama2, 16384, parameters=factors, after_training=after_training).candidates
    ranks = [each.rank_after_training if after_training else each.rank for each in found]
    known = sum(rank is not None for rank in ranks)
    assert ranks == [*range(1, known + 1), *[None] * (len(ranks) - known)]
    assert "longrope" in {each.method for each in found[known:]}
    assert all(each.reason.endswith("; not measured.") for each in found[known:])
    assert not any("not measured" in each.reason for each in found[:known])


def test_the_order_is_that_of_the_list_and_no_change_is_first_where_no_angle_is_new(
    llama2: ContextPlan,
) -> None:
    short = {"base_change": {"base": 1e4}}
    order = [each.method for each in ranking_of(llama2, 16384, parameters=short).candidates]
    measured_order = [name for name in WITHOUT_TRAINING if name in order]
    assert order[:3] == measured_order[:3] == ["yarn", "llama3", "two_band"]
    # The base that the model has already: nothing changes, and no method's gain speaks for it.
    by_name = {each.method: each for each in ranking_of(llama2, 16384, parameters=short).candidates}
    assert by_name["base_change"].measured == ()
    assert by_name["ntk_fixed"].rank is not None
    assert order.index("ntk_fixed") < order.index("base_change") < order.index("linear")


def test_what_was_measured_stands_beside_what_theory_says(llama2: ContextPlan) -> None:
    by_name = {each.method: each for each in ranking_of(llama2, 8 * 4096).candidates}
    linear, yarn = by_name["linear"], by_name["yarn"]
    assert linear.refuted
    assert not yarn.refuted
    assert linear.reason.startswith(f"{linear.theory}; measured without training at 8 times")
    assert linear.theory.startswith("by theory, ")


def test_runtimes_are_asked_of_each_plan(llama2: ContextPlan) -> None:
    found = ranking_of(llama2, 8192, runtimes=lambda plan: (plan.provenance["methods"],))
    assert all(candidate.runtimes == (candidate.method,) for candidate in found.candidates)


def test_methods_without_their_parameters_are_refused_with_a_reason(llama2: ContextPlan) -> None:
    refused = ranking_of(llama2, 8192).refused
    assert "base" in refused["base_change"]
    assert "factors" in refused["longrope"]
    assert "does not extend" in refused["resonance"]


def test_fast_pairs(llama2: ContextPlan) -> None:
    by_name = {candidate.method: candidate for candidate in ranking_of(llama2, 16384).candidates}
    assert by_name["yarn"].fast_stretch == pytest.approx(1)
    assert by_name["linear"].fast_stretch == pytest.approx(4)
    assert by_name["yarn"].theory.endswith("fast pairs are unchanged")
    assert "4 times slower" in by_name["linear"].reason
    fastest = by_name["ntk"].schedule.rescale_factors[:16]  # of 64
    assert by_name["ntk"].fast_stretch == pytest.approx(np.exp(np.log(fastest).mean()))


def test_from_original_forgets_the_present_scaling() -> None:
    present = present_plan(CONFIGS / "llama-3.1-8b.json")
    scaled = ranking_of(present, 262144, parameters={"base_change": {"base": 1e8}})
    fresh = ranking_of(
        present, 262144, from_original=True, parameters={"base_change": {"base": 1e8}}
    )
    ways = {(each.method, each.from_plain) for each in scaled.candidates}
    assert ("base_change", True) in ways
    assert ("base_change", False) not in ways
    assert {("ntk", True), ("ntk", False)} <= ways
    assert not scaled.candidates[0].from_plain, "the trained scaling is kept by default"
    assert not any(each.from_plain for each in fresh.candidates)
    assert "base_change" in {candidate.method for candidate in fresh.candidates}
    recipes = {candidate.schedule.method for candidate in fresh.candidates}
    assert not any(recipe.startswith("llama3+") for recipe in recipes)


def test_progress_rises(llama2: ContextPlan) -> None:
    seen: list[float] = []
    ranking_of(llama2, 8192, progress=seen.append)
    assert seen == sorted(seen)
    assert 0 <= seen[0] < seen[-1] <= 1
