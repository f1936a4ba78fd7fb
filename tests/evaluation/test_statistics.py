from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.evaluation.statistics import (
    compare_means,
    compare_rates,
    holm,
    is_significant,
    mcnemar,
    mean_interval,
    paired_interval,
    rate_interval,
    t_interval,
    t_quantile,
    wilson,
)
from tests.evaluation.scored import known, width


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


@pytest.mark.parametrize(
    ("degrees", "within_95", "within_99"),
    [
        (1, 12.7062047, 63.6567412),
        (2, 4.3026527, 9.9248432),
        (4, 2.7764451, 4.6040949),
        (5, 2.5705818, 4.0321430),
        (29, 2.0452296, 2.7563859),
        (200, 1.9718962, 2.6006344),
        (10**6, 1.9599664, 2.5758342),
    ],
)
def test_the_quantiles_of_t(degrees: int, within_95: float, within_99: float) -> None:
    """The published tables."""
    assert t_quantile(degrees) == pytest.approx(within_95, abs=1e-6)
    assert t_quantile(degrees, 0.99) == pytest.approx(within_99, abs=1e-6)


@given(st.floats(1.0, 2.0))
def test_quantiles_of_fractional_degrees_lie_between(degrees: float) -> None:
    assert t_quantile(2) <= t_quantile(degrees) <= t_quantile(1)


def test_the_interval_of_independent_values_is_students() -> None:
    values = [3.0, 5.0, 4.0, 8.0, 5.0]
    half = 2.7764451 * np.std(values, ddof=1) / math.sqrt(5)
    assert t_interval(values) == pytest.approx((5 - half, 5 + half))


@pytest.mark.parametrize("count", range(1, 5))
def test_fewer_than_five_clusters_give_no_interval_of_any_kind(count: int) -> None:
    values = [1.0 * i for i in range(count)]
    clusters = [i % count for i in range(40)]
    right = [i % 3 == 0 for i in range(40)]
    assert t_interval(values) is None
    assert mean_interval([1.0 * x for x in right], clusters=clusters) is None
    assert rate_interval(right[:count]) is None
    assert rate_interval(right, clusters) is None
    for compared in (
        compare_rates(right[:count], right[:count]),
        compare_rates(right, right[::-1], clusters),
        compare_means(values, values[::-1], [1.0] * count),
    ):
        assert (compared.difference.ends, compared.p_value) == (None, None)


def test_copies_of_a_value_in_one_cluster_add_no_certainty() -> None:
    values = np.random.default_rng(1).normal(size=30)
    clusters = list(range(30))
    once = mean_interval(values, clusters=clusters)
    often = mean_interval(np.repeat(values, 10), clusters=list(np.repeat(clusters, 10)))
    naive = mean_interval(np.repeat(values, 10))
    assert once == pytest.approx(often)
    assert width(naive) < 0.5 * width(once)


def test_a_weight_is_as_many_equal_values_of_a_cluster() -> None:
    values = np.random.default_rng(1).normal(size=8)
    weights = [1, 2, 3, 1, 2, 3, 1, 5]
    repeated = mean_interval(
        np.repeat(values, weights), clusters=list(np.repeat(range(8), weights))
    )
    assert mean_interval(values, weights) == pytest.approx(repeated)


@pytest.mark.parametrize("size", [1e4, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("count", [5, 6, 20])
def test_a_cluster_with_nearly_all_weight_leaves_one_degree_of_freedom(
    size: float, count: int
) -> None:
    values, weights = np.arange(count) % 3.0, np.array([size, *[1.0] * (count - 1)])
    low, high = known(mean_interval(values, weights, list(range(count))))
    mean = np.average(values, weights=weights)
    without = [
        np.average(np.delete(values, i), weights=np.delete(weights, i)) for i in range(count)
    ]
    error = math.sqrt(sum((x - mean) ** 2 for x in without) * (count - 1) / count)
    assert (low, high) == pytest.approx(
        (mean - t_quantile(1) * error, mean + t_quantile(1) * error), rel=1e-3
    )


def test_a_cluster_that_outweighs_the_others_leaves_few_degrees_of_freedom() -> None:
    values = np.random.default_rng(3).normal(size=12)
    even, uneven = (mean_interval(values, [1.0] * 11 + [last]) for last in (1.0, 40.0))
    assert width(uneven) > 2 * width(even)


def test_independent_answers_get_wilsons_interval() -> None:
    right = [i < 18 for i in range(20)]
    assert rate_interval(right) == wilson(18, 20)
    assert rate_interval(right, [str(i) for i in range(20)]) == wilson(18, 20)


def test_answers_of_one_document_widen_the_interval() -> None:
    """Eight answers to each of ten documents: all alike, they are no more than ten answers."""
    documents = [i // 8 for i in range(80)]
    alike = [document < 7 for document in documents]
    mixed = [i % 10 < 7 for i in range(80)]
    spans = [width(rate_interval(right, documents)) for right in (alike, mixed)]
    assert spans[0] > 2 * spans[1]
    low, high = known(rate_interval([True] * 80, documents))
    assert high == 1
    assert low < wilson(10, 10)[0]  # as of ten answers, and by Student's t


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
    assert holm([None, 0.01, None, 0.02]) == [None, 0.02, None, 0.02]


@pytest.mark.parametrize(("p_value", "significant"), [(0.049, True), (0.05, False), (None, False)])
def test_significant_is_a_p_value_below_5_percent(p_value: float | None, significant: bool) -> None:
    assert is_significant(p_value) is significant


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_nor_changes_their_order(values: list[float]) -> None:
    adjusted = [adjusted for adjusted in holm(values) if adjusted is not None]
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


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=5, max_size=40))
def test_comparing_rates_is_antisymmetric_and_holds_the_difference(
    pairs: list[tuple[bool, bool]],
) -> None:
    first, second = zip(*pairs, strict=True)
    there, back = compare_rates(first, second), compare_rates(second, first)
    assert there.difference.value == pytest.approx(np.mean(first) - np.mean(second))
    assert known(there.difference.low) <= there.difference.value <= known(there.difference.high)
    assert back.difference.ends == pytest.approx((-there.difference).ends)
    assert back.p_value == there.p_value


def test_pairing_narrows_the_interval() -> None:
    """Two methods that mostly agree: their difference is surer than two separate rates are."""
    first = [True] * 60 + [False] * 40
    second = [True] * 52 + [False] * 48
    comparison = compare_rates(first, second)
    widths = map(width, (wilson(60, 100), wilson(52, 100)))
    assert known(comparison.difference.high) - known(comparison.difference.low) < math.hypot(
        *widths
    )
    assert comparison.p_value == pytest.approx(2 / 2**8)


def test_comparing_means_finds_a_difference_that_is_there_and_none_that_is_not() -> None:
    random = np.random.default_rng(2)
    base = random.normal(size=40) * 5
    noise = random.normal(size=40) * 0.1
    ones = [1.0] * 40
    apart = compare_means(list(base + 0.2), list(base + noise), ones)
    same = compare_means(list(base), list(base + noise), ones)
    assert known(apart.difference.low) > 0
    assert known(apart.p_value) < 0.01
    assert known(same.difference.low) < 0 < known(same.difference.high)
    assert known(same.p_value) > 0.05


def test_five_pairs_can_be_told_apart() -> None:
    """Random signs never could: of 32 patterns, two go as far as the observed one."""
    compared = compare_means([1.0, 1.1, 0.9, 1.0, 1.2], [0.0] * 5, [1.0] * 5)
    assert known(compared.p_value) < 0.001


@given(st.lists(st.floats(-3, 3), min_size=5, max_size=30), st.integers(5, 12))
def test_the_p_value_and_the_interval_agree(differences: list[float], groups: int) -> None:
    clusters = [i % groups for i in range(len(differences))]
    compared = compare_means(differences, [0.0] * len(differences), [1.0] * len(clusters), clusters)
    p_value = known(compared.p_value)
    if abs(p_value - 0.05) > 1e-6:
        differ = compared.difference.is_above(0) or compared.difference.is_below(0)
        assert (p_value < 0.05) == differ


def test_comparing_answers_of_documents_counts_documents() -> None:
    """In six documents of eight answers the first method is right and the second wrong."""
    documents = [i // 8 for i in range(80)]
    first, second = [True] * 80, [document >= 6 for document in documents]
    clustered, naive = compare_rates(first, second, documents), compare_rates(first, second)
    assert clustered.difference.value == naive.difference.value == 0.6
    assert known(naive.p_value) < 1e-9
    assert 1e-4 < known(clustered.p_value) < 0.05
    assert known(clustered.difference.low) < known(naive.difference.low) - 0.1


def test_clusters_that_agree_exactly_are_not_taken_for_certainty() -> None:
    """Five clusters of two, all alike: as many signs as clusters, and no more."""
    first, second = [True] * 10, [False] * 5 + [True] * 5
    found = compare_rates(first, second, [0, 1, 2, 3, 4] * 2)
    assert known(found.difference.low) < 0
    assert found.p_value == 2**-4


def test_the_interval_of_answers_right_in_part_is_one_of_differences_of_rates() -> None:
    first, second = [1, 1, 0.75, 1, 1], [0, 0, 0, 0.25, 0]
    assert compare_rates(first, second).difference.high == 1
    assert compare_rates(second, first).difference.low == -1


def test_the_interval_of_answers_right_in_part_agrees_with_the_test() -> None:
    """As counts of right and wrong, ten points on each of twenty answers would decide nothing."""
    rng = np.random.default_rng(0)
    second = rng.uniform(0.4, 0.6, 20)
    first = second + rng.normal(0.1, 0.03, 20)
    found = compare_rates(first.tolist(), second.tolist())
    assert known(found.difference.low) > 0
    assert known(found.p_value) < 0.001
