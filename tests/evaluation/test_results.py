from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from ropewalk.errors import InvalidValue
from ropewalk.evaluation.results import (
    MethodComparison,
    compare_methods,
    labels,
    same_choices,
    summarise,
)
from ropewalk.evaluation.statistics import compare_mean_rates, t_interval, wilson
from ropewalk.records import EvalRecord, Subject, is_main
from tests.evaluation.scored import known, record


def _record(
    method: str, sample: int, score: float, metric: str = "exact_match", weights: str = "0f" * 8
) -> EvalRecord:
    task = "needle" if metric == "exact_match" else "perplexity"
    return record(method, str(sample), score, metric=metric, weights=weights, task=task)


def _answers(method: str, right: int, total: int) -> list[EvalRecord]:
    return [_record(method, i, float(i < right)) for i in range(total)]


def test_rates_get_wilson_intervals() -> None:
    none, yarn = summarise([*_answers("none", 3, 20), *_answers("yarn", 18, 20)])
    assert (none.method, none.value, none.samples) == ("none", 0.15, 20)
    assert (yarn.estimate.low, yarn.estimate.high) == wilson(18, 20)


def test_perplexity_is_the_exponential_of_the_mean_loss_and_of_its_interval() -> None:
    losses = [2.0, 3.0, 2.5, 2.2, 2.4]
    [result] = summarise([_record("none", i, loss, "nll") for i, loss in enumerate(losses)])
    assert result.metric == "perplexity"
    assert result.value == pytest.approx(math.exp(np.mean(losses)))
    ends = map(math.exp, known(t_interval(losses)))
    assert (result.estimate.low, result.estimate.high) == pytest.approx(tuple(ends))


def test_one_window_gives_no_interval() -> None:
    [result] = summarise([_record("none", 0, 2.0, "nll")])
    assert (result.estimate.low, result.estimate.high, result.samples) == (None, None, 1)


def test_a_mean_loss_whose_interval_ends_at_0_is_a_perplexity_from_1() -> None:
    """Zero is a number: the end of the interval was once left in nats there."""
    [result] = summarise([_record("none", i, 0.0, "nll") for i in range(5)])
    assert (result.value, result.estimate.low, result.estimate.high) == (1, 1, 1)


def test_an_answer_that_is_right_in_part_counts_as_that_part() -> None:
    halves = [_record("none", i, 0.5) for i in range(20)]
    [result] = summarise(halves)
    assert (result.value, result.estimate.low, result.estimate.high) == (0.5, *wilson(10, 20))
    most = [_record("yarn", i, 0.75 + 0.25 * (i % 2)) for i in range(20)]
    [compared] = compare_methods([*most, *halves])
    assert compared.comparison.difference.value == pytest.approx(0.375)
    assert known(compared.comparison.difference.low) > 0
    assert 0 < known(compared.comparison.p_value) < 0.001
    [same] = compare_methods([*halves, *(_record("ntk", i, 0.5) for i in range(20))])
    assert (same.comparison.difference.value, same.comparison.p_value) == (0, 1)
    assert known(same.comparison.difference.low) < -0.05, "twenty samples are not certainty"


def test_a_task_may_name_a_metric_of_its_own() -> None:
    own = [replace(_record("none", i, 0.25, "own_rule"), mode="generate") for i in range(8)]
    [result] = summarise(own)
    assert (result.metric, result.value) == ("own_rule", 0.25)
    assert (result.estimate.low, result.estimate.high) == wilson(2, 8)
    assert is_main(result)
    assert not is_main(replace(result, mode="teacher_forced"))
    with pytest.raises(InvalidValue, match=r"own_rule must be from 0 to 1"):
        replace(own[0], score=1.5)


def test_answers_of_one_document_are_one_cluster() -> None:
    alone = _answers("none", 16, 40)
    documents = [replace(r, layout=f"document {i // 4}") for i, r in enumerate(alone)]
    few = [replace(r, layout=f"document {i // 10}") for i, r in enumerate(alone)]
    [one], [other], [none] = (summarise(records) for records in (alone, documents, few))
    widths = [known(result.estimate.high) - known(result.estimate.low) for result in (one, other)]
    assert widths[1] > 1.5 * widths[0]
    assert (none.estimate.low, none.estimate.high) == (None, None)


def test_too_few_samples_give_neither_interval_nor_test_and_leave_holm_alone() -> None:
    few = [_record("none", i, 1.0, "nll") for i in range(4)]
    few += [_record("yarn", i, 2.0, "nll") for i in range(4)]
    many = [*_answers("none", 2, 40), *_answers("yarn", 30, 40)]
    untested, tested = compare_methods([*few, *many])
    assert (untested.comparison.p_value, untested.adjusted_p) == (None, None)
    assert tested.adjusted_p == tested.comparison.p_value
    again = MethodComparison.from_json(json.loads(json.dumps(untested.to_json())))
    assert again.adjusted_p is None


def test_methods_are_compared_on_the_samples_they_share() -> None:
    records = [*_answers("none", 2, 40), *_answers("yarn", 30, 40), *_answers("ntk", 30, 30)]
    compared = {(c.first.method, c.second.method): c for c in compare_methods(records)}
    assert list(compared) == [("none", "yarn"), ("none", "ntk"), ("yarn", "ntk")]
    assert compared["none", "yarn"].comparison.pairs == 40
    assert compared["none", "yarn"].comparison.difference.value == pytest.approx(-0.7)
    assert compared["yarn", "ntk"].comparison.pairs == 30
    assert compared["yarn", "ntk"].adjusted_p == 1.0
    assert compared["none", "ntk"].adjusted_p == pytest.approx(3 * 2 / 2**28)


def test_losses_are_compared_as_losses() -> None:
    none = [_record("none", i, 2.0 + 0.1 * i, "nll") for i in range(12)]
    yarn = [_record("yarn", i, 1.9 + 0.1 * i, "nll") for i in range(12)]
    [compared] = compare_methods([*none, *yarn])
    assert compared.comparison.difference.value == pytest.approx(0.1)
    assert known(compared.adjusted_p) < 0.01
    again = MethodComparison.from_json(json.loads(json.dumps(compared.to_json())))
    assert again == compared
    assert again.comparison.difference == compared.comparison.difference


def test_two_checkpoints_under_one_plan_are_never_mistaken_for_each_other() -> None:
    before = [_record("yarn", i, 0.0, weights="aaaaaaaa") for i in range(8)]
    after = [_record("yarn", i, 1.0, weights="bbbbbbbb") for i in range(8)]
    first, second = summarise([*before, *after])
    assert (first.weights, first.value, first.samples) == ("aaaaaaaa", 0, 8)
    assert (second.weights, second.value, second.samples) == ("bbbbbbbb", 1, 8)
    [compared] = compare_methods([*before, *after])
    assert (compared.first, compared.second) == (first.subject, second.subject)
    assert compared.comparison.difference.value == -1
    assert list(labels([first.subject, second.subject]).values()) == [
        "yarn (aaaaaa)",
        "yarn (bbbbbb)",
    ]


def test_labels_say_no_more_than_tells_subjects_apart() -> None:
    subjects = [
        Subject("weights", "plan 1", "none"),
        Subject("weights", "plan 2", "yarn"),
        Subject("weights", "plan 3", "yarn"),
    ]
    assert list(labels(subjects).values()) == ["unmodified", "yarn (plan 2)", "yarn (plan 3)"]


def test_means_over_tasks_are_compared_with_the_tasks() -> None:
    def answers(method: str, task: str, right: int) -> list[EvalRecord]:
        return [
            replace(r, task=task, sample=f"{task} {r.sample}", layout=f"{task} {r.layout}")
            for r in _answers(method, right, 20)
        ]

    records = [
        answer
        for method, rights in (("none", (2, 8)), ("yarn", (12, 14)))
        for task, right in zip(("a", "b"), rights, strict=True)
        for answer in answers(method, task, right)
    ]
    found = {c.task: c for c in compare_methods(records, {"both": ("a", "b"), "more": ("a", "c")})}
    assert list(found) == ["a", "b", "both"]
    both = found["both"].comparison
    assert both.pairs == 40
    assert both.difference.value == pytest.approx(-0.4)
    assert known(both.difference.high) < 0
    assert known(both.p_value) < 0.001
    assert found["both"].adjusted_p == pytest.approx(3 * known(both.p_value))


def test_a_mean_that_differs_in_a_few_answers_is_no_more_certain_than_their_signs() -> None:
    """One task where all five differ, and twelve where none does, have a spread of zero."""
    first = [([float(t == 0)] * 5, [(t, i) for i in range(5)]) for t in range(13)]
    second = [([0.0] * 5, [(t, i) for i in range(5)]) for t in range(13)]
    found = compare_mean_rates(first, second)
    assert found.p_value == 2**-4
    assert compare_mean_rates(first, first).p_value == 1


@pytest.mark.parametrize("differing", [0, 1])
def test_a_share_of_same_choices_has_an_interval_within_0_and_1(
    differing: int,
) -> None:
    records = [
        record(method, f"{sample}", 1.0, plan_id="p", choices=choices, task="facts", weight=8)
        for sample in range(6)
        for method, choices in (("a", (1,) * 8), ("b", (1,) * 7 + (1 + (sample < differing),)))
    ]
    (pair,) = same_choices(records)
    assert pair.share.value == pytest.approx(1 - differing / 48)
    assert 0.8 < known(pair.share.low) < pair.share.value <= known(pair.share.high) <= 1
