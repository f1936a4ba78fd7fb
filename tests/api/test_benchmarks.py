"""Intervals and comparisons of `benchmarks`; tests/harness runs the whole verb."""

from __future__ import annotations

from statistics import fmean

import pytest

from ropewalk.api.benchmarks import _comparisons, _interval
from ropewalk.cli.declared import Call
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.public_benchmarks import BenchmarkScores, Weighting
from ropewalk.evaluation.statistics import holm, mean_rate_interval, rate_interval
from tests.cli.calling import ropewalk

NONE, YARN = Condition("none", "a" * 16, None), Condition("yarn", "b" * 16, None)


def _scores(
    tasks: dict[str, list[float]],
    name: str = "mmlu",
    metric: str = "acc",
    weighting: Weighting | None = "questions",
    *,
    compared: bool = True,
) -> BenchmarkScores:
    scores = {task: dict(enumerate(own)) for task, own in tasks.items()}
    return BenchmarkScores(name, metric, 0.5, scores, weighting, compared)


RIGHT, WRONG = [1.0] * 9 + [0.0], [0.0] * 8 + [1.0] * 2


def test_filters_and_conditions_are_never_mixed() -> None:
    ours = [_scores({"g": RIGHT}, "g", "em,strict"), _scores({"g": WRONG}, "g", "em,flexible")]
    theirs = [_scores({"g": WRONG}, "g", "em,strict"), _scores({"g": WRONG}, "g", "em,flexible")]
    found = _comparisons([(NONE, ours), (YARN, theirs)])
    assert [(c.metric, c.first, c.second) for c in found] == [
        ("em,strict", "none", "yarn"),
        ("em,flexible", "none", "yarn"),
    ]
    assert [c.comparison.difference for c in found] == [pytest.approx(0.7), 0]
    p_values = [c.comparison.p_value or 0.0 for c in found]
    assert [c.adjusted_p for c in found] == holm(p_values)
    assert _comparisons([(NONE, ours)]) == []


def test_one_plan_under_two_names_is_not_compared() -> None:
    again = Condition("yarn (bbbbbb)", YARN.plan_id, None)
    scores = [_scores({"g": RIGHT}, "g")]
    assert _comparisons([(YARN, scores), (again, scores)]) == []


def test_parts_of_a_group_do_not_count_in_holm() -> None:
    def own(scores: list[float]) -> list[BenchmarkScores]:
        tasks = {"anatomy": scores, "law": scores}
        parts = [_scores({task: scores}, task, compared=False) for task in tasks]
        return [_scores(tasks), *parts]

    [found] = _comparisons([(NONE, own(RIGHT)), (YARN, own(WRONG))])
    assert (found.task, found.comparison.pairs) == ("mmlu", 20)
    assert found.adjusted_p == found.comparison.p_value


def test_the_interval_of_a_group_follows_its_weighting() -> None:
    tasks = {"anatomy": [1.0] * 18 + [0.0] * 2, "law": [1.0] * 10 + [0.0] * 50}
    by_question, by_task = _scores(tasks), _scores(tasks, weighting="tasks")
    assert _interval(by_question) == rate_interval(tasks["anatomy"] + tasks["law"])
    names = [[(task, i) for i in range(len(own))] for task, own in tasks.items()]
    expected = mean_rate_interval(list(zip(tasks.values(), names, strict=True)))
    assert _interval(by_task) == expected
    low, high = expected or (1.0, 0.0)
    assert low < fmean(fmean(own) for own in tasks.values()) < high

    worse = {"anatomy": [0.0] * 20, "law": tasks["law"]}
    differences = {
        weighting: _comparisons(
            [
                (NONE, [_scores(tasks, weighting=weighting)]),
                (YARN, [_scores(worse, weighting=weighting)]),
            ]
        )[0].comparison.difference
        for weighting in ("questions", "tasks")
    }
    assert differences == {"questions": pytest.approx(18 / 80), "tasks": pytest.approx(0.9 / 2)}


def test_scores_above_one_are_weighted_too() -> None:
    tasks = {"anatomy": [40.0, 60.0, 50.0], "law": [10.0] * 9}
    low, high = _interval(_scores(tasks, weighting="tasks")) or (0.0, 0.0)
    assert (low + high) / 2 == pytest.approx(30)


def test_a_value_that_is_no_mean_has_no_interval_and_no_comparison() -> None:
    own = _scores({"g": RIGHT}, weighting=None)
    assert _interval(own) is None
    assert _comparisons([(NONE, [own]), (YARN, [own])]) == []


def test_the_command_strips_blanks_between_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def record(call: Call[object]) -> None:
        asked.extend(call.given["names"])
        raise SystemExit(0)

    monkeypatch.setattr("ropewalk.cli.declared.Call.__call__", record)
    ropewalk("benchmarks", "bundled", "--names", "hellaswag, mmlu")
    assert asked == ["hellaswag", "mmlu"]
