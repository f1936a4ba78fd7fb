"""The verdict on answers whose rate is known; the simulation has other models and thresholds."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from benchmarks import verdict as simulated
from ropewalk.evaluation.statistics import skewed_mean_interval
from ropewalk.evaluation.verdict import LOOKS, MARGIN, TO_WORK, Look, Shares, look, looks_of
from tests.evaluation.scored import known, width


def of(rate: float, documents: int, texts: int | None = None) -> Shares:
    """Documents of eight facts, of which so many are retrieved, spread evenly."""
    right = round(8 * documents * rate)
    ends = [right * i // documents for i in range(documents + 1)]
    shares = [(b - a) / 8 for a, b in pairwise(ends)]
    return Shares(shares, 8, [i % (texts or documents) for i in range(documents)])


@pytest.mark.parametrize(
    ("rate", "reference", "expected"),
    [
        (1.0, 1.0, "works"),
        (0.7, 0.65, "works"),  # not the absolute rate
        (0.9, 1.0, "undecided"),
        (0.6, 1.0, "does not work"),
        (0.4, 0.4, "cannot be judged"),
        (0.0, 0.49, "cannot be judged"),
    ],
)
def test_documents_decide_what_is_far_from_the_margin(
    rate: float, reference: float, expected: str
) -> None:
    found = look(of(rate, 48), of(reference, 48))
    assert found.verdict == expected
    assert found.rate == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize(("rate", "reference"), [(0.95, 0.97), (0.85, 0.9), (0.82, 1.0)])
def test_so_many_documents_more_would_tell(rate: float, reference: float) -> None:
    few = look(of(rate, 8), of(reference, 48))
    assert few.verdict == "undecided"
    count = few.documents + known(few.more)
    assert look(of(rate, 2 * count), of(reference, 48)).verdict != "undecided"
    assert look(of(rate, count // 3), of(reference, 48)).verdict == "undecided"


def test_nothing_works_by_documents_too_few_to_show_one_that_is_lost() -> None:
    found = looks_of(of(1.0, TO_WORK), of(1.0, 48))
    assert [each.verdict for each in found] == ["undecided", "undecided", "works"]
    assert [each.documents + known(each.more) for each in found[:-1]] == [TO_WORK, TO_WORK]


def test_at_the_margin_no_number_is_promised() -> None:
    assert look(of(0.9, 50), of(1.0, 48)).more is None
    few = look(of(1.0, 4), of(1.0, 48))
    assert (few.difference.low, few.verdict, few.more) == (None, "undecided", TO_WORK - 4)


def test_facts_of_documents_that_differ_count_for_less() -> None:
    """The same rate, from documents that retrieve all or nothing."""
    even = of(0.75, 16)
    apart = even._replace(shares=[1.0] * 12 + [0.0] * 4)
    assert width(apart.estimate().ends) > 2 * width(even.estimate().ends)
    # So do documents of one text, where they are alike; of fewer than five texts nothing is known.
    alike = apart._replace(shares=[1.0, 1.0, 1.0, 0.0] * 8, texts=[0, 1, 2, 3] * 8)
    in_texts = Shares([float(i % 8 < 6) for i in range(32)], 8, [i % 8 for i in range(32)])
    assert width(in_texts.estimate().ends) > 1.5 * width(alike.estimate().ends)


def test_the_looks_are_at_the_planned_numbers_and_at_the_end() -> None:
    found = looks_of(of(0.9, 20), of(1.0, 48))
    assert [each.documents for each in found] == [6, 12, 20]
    assert looks_of(of(0.9, 20)._replace(shares=[], texts=[]), of(1.0, 48)) == ()


def _of_two_kinds(random: np.random.Generator, rate: float) -> Look:
    """Half of the documents are easy, half are hard: the variance is 1.8 times as large."""
    apart = math.sqrt(0.8 / 7 * rate * (1 - rate))
    chance = rate + apart * random.choice([-1, 1], LOOKS[-1])
    own = (random.binomial(8, chance) / 8).tolist()
    within = Shares((random.binomial(8, 0.98, 48) / 8).tolist(), 8, range(48))
    for count in LOOKS:
        found = look(Shares(own[:count], 8, range(count)), within)
        if found.verdict != "undecided":
            break
    return found


@pytest.mark.slow
def test_a_model_at_the_margin_is_seldom_said_to_work() -> None:
    """By another model than the simulation's."""
    random = np.random.default_rng(7)
    told = [_of_two_kinds(random, 0.98 - MARGIN).verdict for _ in range(400)]
    assert told.count("works") / 400 <= 0.05
    told = [_of_two_kinds(random, 0.6).verdict for _ in range(100)]
    assert told.count("works") == 0
    assert told.count("does not work") >= 95


@pytest.mark.slow
@pytest.mark.parametrize("reference", [1.0, 0.98, 0.8])
def test_so_is_one_that_loses_whole_documents(reference: float) -> None:
    """And answers the others as it does within its window: the simulation's gets all right."""
    random = np.random.default_rng(11)
    within = Shares((random.binomial(8, reference, 48) / 8).tolist(), 8, range(48))
    wrong, times = 0, 1000
    for _ in range(times):
        kept = random.random(LOOKS[-1]) < 1 - MARGIN / reference
        own = (kept * random.binomial(8, reference, LOOKS[-1]) / 8).tolist()
        found = looks_of(Shares(own, 8, range(LOOKS[-1])), within)
        decided = [each.verdict for each in found if each.verdict != "undecided"]
        wrong += decided[:1] == ["works"]
    assert wrong / times <= 0.065  # 5%, and two errors of the draws


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
    assert {key.split(", ")[0] for key in content["verdicts"]} == {"0.9", "1.8", "8"}
    for case in content["verdicts"].values():
        at = case[f"{-MARGIN:g}"]
        assert at["works"] <= 0.05
        assert at["works"] + at["does not work"] <= 0.07
        assert all(case[worse]["works"] <= 0.02 for worse in ("-0.15", "-0.2", "-0.4"))
        assert case["0"]["does not work"] <= 0.01
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
