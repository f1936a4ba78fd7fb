from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.evaluation.statistics import (
    bootstrap_mean,
    compare_means,
    compare_rates,
    holm,
    mcnemar,
    paired_interval,
    wilson,
)


@pytest.mark.parametrize(
    ("total", "lower"), [(10, 0.7225), (20, 0.8389), (50, 0.9287), (500, 0.9924)]
)
def test_wilson_of_perfect_scores(total: int, lower: float) -> None:
    """The published figures: all right out of so many is at least so much."""
    assert wilson(total, total) == pytest.approx((lower, 1.0), abs=5e-5)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_solves_its_equation(right_of_total: tuple[int, int]) -> None:
    """At its ends, the observed rate lies z standard errors of the end away."""
    right, total = right_of_total
    rate = right / total
    low, high = wilson(right, total)
    assert 0 <= low <= rate <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            error = math.sqrt(end * (1 - end) / total)
            assert abs(rate - end) / error == pytest.approx(1.959964, rel=1e-5)
    assert wilson(total - right, total) == pytest.approx((1 - high, 1 - low))


def test_wilson_covers_what_it_promises() -> None:
    """Averaged over rates, about 95% of the intervals hold the rate they came from."""
    total, covered = 20, []
    for rate in np.linspace(0.02, 0.98, 97):
        chance = [math.comb(total, k) * rate**k * (1 - rate) ** (total - k) for k in range(21)]
        inside = [wilson(k, total)[0] <= rate <= wilson(k, total)[1] for k in range(21)]
        covered.append(np.dot(chance, inside))
    assert 0.945 < np.mean(covered) < 0.965


def test_the_bootstrap_of_many_independent_values_is_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, size=4000)
    interval = bootstrap_mean(values)
    assert interval is not None
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert interval == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_copies_of_a_value_in_one_cluster_add_no_certainty() -> None:
    values = np.random.default_rng(1).normal(size=30)
    clusters = list(range(30))
    once = bootstrap_mean(values, clusters=clusters)
    often = bootstrap_mean(np.repeat(values, 10), clusters=list(np.repeat(clusters, 10)))
    naive = bootstrap_mean(np.repeat(values, 10))
    assert once == pytest.approx(often)
    assert once is not None
    assert naive is not None
    assert naive[1] - naive[0] < 0.5 * (once[1] - once[0])


def test_the_bootstrap_weighs_and_repeats_and_knows_when_to_be_silent() -> None:
    assert bootstrap_mean([1.0, 1.0, 9.0] * 9, [1, 1, 1e-9] * 9) == pytest.approx((1.0, 1.0))
    assert bootstrap_mean([1.0, 2.0, 4.0]) == bootstrap_mean([1.0, 2.0, 4.0])
    assert bootstrap_mean([1.0, 2.0], clusters=["one", "one"]) is None
    assert bootstrap_mean([1.0]) is None


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 0), (5, 0), (0, 6), (3, 9), (7, 7)])
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int) -> None:
    total = only_first + only_second
    chances = [Fraction(math.comb(total, k), 2**total) for k in range(total + 1)]
    as_far = sum(c for c in chances if c <= chances[only_first])
    assert mcnemar(only_first, only_second) == pytest.approx(float(as_far))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_nor_changes_their_order(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(p <= q <= 1 for p, q in zip(values, adjusted, strict=True))
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_the_paired_interval_covers_what_it_promises() -> None:
    """Every outcome of thirty pairs, weighed by its chance: about 95% hold the true difference."""
    total, covered = 30, []
    for both, only_first, only_second in [(0.6, 0.2, 0.1), (0.3, 0.3, 0.1), (0.7, 0.1, 0.1)]:
        neither = 1 - both - only_first - only_second
        coverage = 0.0
        for a in range(total + 1):
            for b in range(total + 1 - a):
                for c in range(total + 1 - a - b):
                    d = total - a - b - c
                    ways = math.comb(total, a) * math.comb(total - a, b) * math.comb(c + d, c)
                    low, high = paired_interval(a, b, c, d)
                    if low <= only_first - only_second <= high:
                        coverage += ways * both**a * only_first**b * only_second**c * neither**d
        covered.append(coverage)
    assert 0.94 < np.mean(covered) < 0.975


def test_without_correlation_the_paired_interval_is_two_wilson_intervals_squared_and_added() -> (
    None
):
    low, high = paired_interval(10, 10, 10, 10)
    half = math.hypot(0.5 - wilson(20, 40)[0], wilson(20, 40)[1] - 0.5)
    assert (low, high) == pytest.approx((-half, half))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_comparing_rates_is_antisymmetric_and_holds_the_difference(
    pairs: list[tuple[bool, bool]],
) -> None:
    first, second = zip(*pairs, strict=True)
    there, back = compare_rates(first, second), compare_rates(second, first)
    assert there.difference == pytest.approx(np.mean(first) - np.mean(second))
    assert there.low is not None
    assert there.high is not None
    assert there.low <= there.difference <= there.high
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))
    assert back.p_value == there.p_value


def test_pairing_narrows_the_interval() -> None:
    """Two methods that mostly agree: their difference is surer than two separate rates are."""
    first = [True] * 60 + [False] * 40
    second = [True] * 52 + [False] * 48
    comparison = compare_rates(first, second)
    assert comparison.low is not None
    assert comparison.high is not None
    widths = [b - a for a, b in (wilson(60, 100), wilson(52, 100))]
    assert comparison.high - comparison.low < math.hypot(*widths)
    assert comparison.p_value == pytest.approx(2 / 2**8)


def test_comparing_means_finds_a_difference_that_is_there_and_none_that_is_not() -> None:
    random = np.random.default_rng(2)
    base = random.normal(size=40) * 5
    noise = random.normal(size=40) * 0.1
    ones = [1.0] * 40
    apart = compare_means(list(base + 0.2), list(base + noise), ones)
    same = compare_means(list(base), list(base + noise), ones)
    assert apart.low is not None
    assert apart.low > 0
    assert apart.p_value < 0.01
    assert same.low is not None
    assert same.high is not None
    assert same.low < 0 < same.high
    assert same.p_value > 0.05
