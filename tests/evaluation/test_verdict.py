"""The verdict on answers whose rate is known; the simulation has other models and thresholds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import verdict as simulated
from ropewalk.evaluation.statistics import mean_rate_interval, skewed_mean_interval
from ropewalk.evaluation.verdict import CONFIDENCE, LOOKS, THRESHOLD, Look, blocks, look
from tests.evaluation.scored import known, width

TASKS = 3


def tasks_of(right: int, of: int, count: int) -> list[tuple[list[float], list[object]]]:
    """Tasks with the same share of right answers, each sample on text of its own."""
    scores = [float((i + 1) * right // of - i * right // of) for i in range(count)]
    return [(scores, [(task, i) for i in range(count)]) for task in range(TASKS)]


@pytest.mark.parametrize(
    ("right", "expected"),
    [(10, "works"), (9, "undecided"), (8, "undecided"), (5, "does not work"), (0, "does not work")],
)
def test_twenty_answers_a_task_decide_what_is_far_from_the_threshold(
    right: int, expected: str
) -> None:
    found = look(tasks_of(right, 10, 20))
    assert (found.samples, found.verdict) == (60, expected)
    assert found.rate == pytest.approx(right / 10)


@pytest.mark.parametrize(("right", "of"), [(4, 5), (18, 20), (39, 50), (46, 50)])
def test_so_many_samples_more_would_tell(right: int, of: int) -> None:
    few = look(tasks_of(right, of, 20))
    assert few.verdict == "undecided"
    count = (few.samples + known(few.more)) // TASKS
    assert look(tasks_of(right, of, 2 * count)).verdict != "undecided"
    assert look(tasks_of(right, of, count // 3)).verdict == "undecided"


def test_at_the_threshold_no_number_is_promised() -> None:
    assert look(tasks_of(17, 20, 20)).more is None
    # Too few for an interval: the looks that are left.
    few = look(tasks_of(1, 1, 1))
    assert (few.low, few.verdict, few.more) == (None, "undecided", 3 * (2**LOOKS - 1))


def test_each_look_is_wider_than_an_interval_of_95_percent() -> None:
    """Also over clusters, where Student's t takes the place of the normal distribution."""
    for size in (1, 4):
        tasks = [(scores, [i // size for i in range(40)]) for scores, _ in tasks_of(9, 10, 40)]
        narrow, wide = map(
            known, (mean_rate_interval(tasks), mean_rate_interval(tasks, CONFIDENCE))
        )
        assert wide[0] < narrow[0] < narrow[1] < wide[1]
        assert (look(tasks).low, look(tasks).high) == wide
    assert blocks(20) == [20, 40, 80, 160, 320]


def _uneven(random: np.random.Generator, rate: float) -> Look:
    """Of twenty stretches of text, some can never be answered; the others nearly always."""
    most = blocks(20)[-1]
    lost = random.random(30) < (0.98 - rate) / 0.98
    place = random.integers(0, 30, size=most)
    tasks = [
        (np.where(lost[place], 0.0, random.random(most) < 0.98).tolist(), place.tolist())
        for _ in range(2)
    ]
    for count in blocks(20):
        found = look([(scores[:count], names[:count]) for scores, names in tasks])
        if found.verdict != "undecided":
            break
    return found


@pytest.mark.slow
def test_a_model_at_the_threshold_is_seldom_said_to_work() -> None:
    """By another model than the simulation's, in which stretches of text are lost as a whole."""
    random = np.random.default_rng(7)
    told = [_uneven(random, THRESHOLD).verdict for _ in range(400)]
    assert told.count("works") / 400 <= 0.05 + 0.02
    told = [_uneven(random, 0.6).verdict for _ in range(100)]
    assert told.count("works") == 0
    assert told.count("does not work") >= 60


def test_texts_that_do_not_differ_cost_no_power() -> None:
    random = np.random.default_rng(3)
    values = random.normal(size=32)
    texts = [i % 8 for i in range(32)]
    apart = np.repeat(random.normal(size=8), 4)[np.argsort(np.argsort(texts, kind="stable"))]
    alone = width(skewed_mean_interval(values))
    assert width(skewed_mean_interval(values, texts)) < 1.25 * alone
    # Where all documents of a text agree, there are as many values as texts, and not 32.
    alike = apart + 1e-6 * values
    alone = width(skewed_mean_interval(alike))
    assert width(skewed_mean_interval(alike, texts)) > 1.8 * alone


def test_the_recorded_simulation_is_within_its_limits() -> None:
    content = json.loads(simulated.RESULTS.read_text())
    for case in content["verdicts"].values():
        at = case[f"{THRESHOLD:g}"]
        assert at["works"] <= 0.05
        assert at["works"] + at["does not work"] <= 0.06
        assert all(case[rate]["works"] <= 0.01 for rate in ("0.7", "0.8"))
        assert case["0.95"]["does not work"] <= 0.01
    for key, found in content["compared"].items():
        _, documents, texts, _, shift = key.split(", ")
        if shift == "0":
            alarms = found["better"] + found["worse"]
            assert content["false_alarms"] >= 20_000  # 6% is then known to 0.3 points
            assert alarms <= 0.06, key
            assert int(texts) < 8 or alarms >= 0.03, key
            assert int(documents) >= 16


@pytest.mark.slow
@pytest.mark.parametrize("kind", simulated.KINDS)
@pytest.mark.parametrize(("documents", "texts"), simulated.DOCUMENTS)
def test_schedules_that_are_equal_are_seldom_told_apart(
    kind: str, documents: int, texts: int
) -> None:
    """With a seed of its own: not the one that the docs show."""
    found = simulated.compared(kind, documents, texts, 0.3, 0.0, times=1000, seed=1)
    assert found["better"] + found["worse"] <= 0.08
