"""The study of the ranking: its arithmetic, its loop, and that the package says what it found."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from ropewalk.context_plan import FULL_ATTENTION, PlanStep
from ropewalk.models.load import load
from ropewalk.planning import measured
from ropewalk.planning.extension import extend_plan
from ropewalk.scaling import linear, ntk, yarn
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from studies.ranking import tables
from studies.ranking.analysis import (
    FLOOR,
    Group,
    behind,
    by_rule,
    ceiling,
    fitted,
    groups,
    measured_rows,
    rank_correlation,
    rightly_ordered,
    trained_less_yarn,
)
from studies.ranking.cells import Cell, all_cells, schedules
from studies.ranking.measure import CELLS, lines, whole_groups
from studies.ranking.quantities import QUANTITIES, Case
from studies.ranking.tuning import tuned

PLAIN = RotarySchedule.plain(RotaryGeometry(32, 32, 1e4, 128))
RULES = tables.recorded()["rules"]


def group(rates: dict[str, float], documents: int = 40, subject: str = "narrow") -> Group:
    """Methods that retrieve so much on average; documents vary alike for all of them."""
    rng = np.random.default_rng(0)
    moods = rng.normal(0, 0.05, documents)
    made = {"linear": linear, "ntk": ntk, "yarn": yarn}
    return Group(
        subject,
        4,
        0,
        tuple(map(str, range(documents))),
        {m: rate + moods + rng.normal(0, 0.02, documents) for m, rate in rates.items()},
        {m: Case(PLAIN, made[m].schedule(PLAIN, 512), 512) for m in rates if m in made},
    )


def test_pairs_are_separated_with_the_better_one_first() -> None:
    found = group({"linear": 0.1, "ntk": 0.5, "yarn": 0.5})
    assert set(found.separated) == {("ntk", "linear"), ("yarn", "linear")}


def test_a_rule_is_fitted_to_the_order_and_has_positive_weights() -> None:
    found = [group({"linear": 0.0, "ntk": 0.4, "yarn": 0.8})]
    rule = fitted(found, ("fast_stretch", "new_angles"))
    assert rule is not None
    assert rightly_ordered(found, by_rule(rule)) == (3, 3)
    upside_down = [group({"linear": 0.8, "ntk": 0.4, "yarn": 0.0})]
    assert fitted(upside_down, ("fast_stretch",)) is None
    assert rightly_ordered(upside_down, by_rule(rule)) == (0, 3)


def test_pairs_with_a_method_that_retrieves_nothing_are_counted_apart() -> None:
    rates = {"yarn": 0.9, "ntk": 0.5, "linear": 0.02}
    found = group(rates)
    by_rate = {method: -rate for method, rate in rates.items()}
    assert rightly_ordered([found], lambda _, method: by_rate[method]) == (3, 3)
    assert rightly_ordered([found], lambda _, method: by_rate[method], FLOOR) == (1, 1)


def test_training_is_compared_with_yarn_untrained_over_models() -> None:
    before = [group({"yarn": 0.5}, subject=f"model {i}") for i in range(6)]
    after = [group({"base_change": 0.7}, subject=f"model {i}") for i in range(5)]
    found = trained_less_yarn(
        [replace(g, factor=4, steps=0) for g in before]
        + [replace(g, factor=4, steps=200) for g in after]
    )
    assert found is not None
    assert len(found["by_subject"]) == 5
    assert found["mean"] == pytest.approx(
        np.mean(
            [b.mean("base_change") - a.mean("yarn") for a, b in zip(before, after, strict=False)]
        ),
        abs=1e-4,
    )
    low, high = found["interval"]
    assert low <= found["mean"] <= high


def test_what_is_behind_is_not_flattered_by_choosing_the_best_on_the_same_documents() -> None:
    rng = np.random.default_rng(1)
    gaps = []
    for _ in range(60):
        noise = {m: rng.normal(0.5, 0.2, 40) for m in ("linear", "ntk", "yarn")}
        equal = group(dict.fromkeys(noise, 0.5))
        same = Group(**{**vars(equal), "retrieved": noise})
        gaps.append(behind(same, lambda _, method: 0.0 if method == "ntk" else 1.0)[0])
    assert abs(np.mean(gaps)) < 3 * np.std(gaps) / len(gaps) ** 0.5


def test_the_ceiling_is_high_where_methods_differ() -> None:
    assert ceiling(group({"linear": 0.0, "ntk": 0.4, "yarn": 0.8})) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)
    assert rank_correlation([1, 1, 2, 2], [5, 5, 9, 9]) == pytest.approx(1)
    assert np.isnan(rank_correlation([1, 1], [1, 2]))


def test_what_changes_nothing_has_no_quantity() -> None:
    unchanged = Case(PLAIN, PLAIN, PLAIN.length)
    assert not any(quantity(unchanged) for name, quantity in QUANTITIES.items() if name not in
                   ("violations", "shortness"))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "order"),
    [("without training", measured.WITHOUT_TRAINING), ("after training", measured.AFTER_TRAINING)],
)
def test_the_package_has_the_lists_of_the_study(name: str, order: tuple[str, ...]) -> None:
    first, *rest = order
    assert first == measured.FITS
    assert rest[rest.index("dynamic_ntk") + 1] == "ntk", "one schedule, measured once"
    assert [each for each in rest if each != "ntk"] == RULES[name]["list_of_names"]


def test_the_package_says_what_the_cells_say() -> None:
    rows = json.loads((measured.FILE_PATH).read_text())["rows"]
    assert rows == measured_rows(whole_groups(groups(lines())))


def test_finished_cells_are_in_the_order_of_the_study() -> None:
    assert CELLS.exists()
    steps = [cell.steps for cell in all_cells(["bundled"], CELLS)]
    assert steps == sorted(steps), "untouched models come first"
    assert {cell.factor for cell in all_cells(["bundled"], CELLS)} == {2, 4, 8}
    assert Cell("bundled", 4, "yarn", (0,)) in all_cells(["bundled"], CELLS)


def test_methods_that_turn_alike_are_measured_once() -> None:
    loaded = load("bundled")
    found = schedules(loaded.present_plan, 1024)
    assert "ntk" not in found
    assert "dynamic_ntk" in found
    assert found["none"].length == 1024


@pytest.mark.slow
def test_tuning_stops_where_it_is_asked_to_and_trains_under_the_plan() -> None:
    torch.set_num_threads(1)
    loaded = load("bundled")
    plan = extend_plan(loaded.present_plan, 1024, "yarn")
    plan = plan.with_steps(FULL_ATTENTION, (PlanStep(1024, plan.longest()),))
    before = loaded.model.lm_head.weight.detach().clone()
    assert list(tuned(loaded, plan, (0,), seed=1)) == [0]
    assert torch.equal(before, loaded.model.lm_head.weight)
    again = load("bundled")
    weights = []
    for steps in tuned(loaded, plan, (1, 2), seed=1):
        weights.append((steps, loaded.model.lm_head.weight.detach().clone()))
    assert [steps for steps, _ in weights] == [1, 2]
    assert not torch.equal(weights[0][1], weights[1][1])
    assert list(tuned(again, plan, (2,), seed=1)) == [2]
    assert torch.equal(again.model.lm_head.weight, weights[1][1]), "a stop changes nothing"
