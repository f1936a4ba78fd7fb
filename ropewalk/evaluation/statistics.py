"""Intervals for rates and means, and paired comparisons. No torch.

Samples that read the same stretch of text are not independent, so every interval is made over
clusters: the stretches of text, or whatever else was drawn independently. Fewer than five clusters
say too little about how clusters differ, and get no interval at all.

    rates        Wilson's interval, which is honest at 0 and at 1: twenty right out of twenty are
                 "84% or more". With clusters of several samples, Wilson's for as many independent
                 samples as would be as sure. An answer that is right in part counts as that part:
                 no scores from 0 to 1 vary more than right and wrong ones of the same mean
    means        Student's t over clusters, which may differ in size
    choices      among schedules: the same with a random effect of clusters, allowing for skewness
    differences  of two methods on the same samples: what both get right or wrong says nothing about
                 them, so the paired interval is narrower than two separate ones
    mean rates   over tasks, which were chosen and not drawn: that tasks differ makes nothing less
                 sure, and only what varies within each of them counts

`python -m benchmarks.coverage` measures how often each kind contains the truth.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropewalk.interval import CONFIDENCE, Ends, Interval, Unit
from ropewalk.values import Value

FEWEST = 5
"""Fewer clusters than these give no interval."""
SIGNIFICANT = 0.05
MATTERS = 1.25
"""The factor by which clusters must vary more than their values imply, to count as clusters."""
ROUNDING = 1e-12  # a smaller error of rates is none
TERMS = 40  # of the continued fraction: more change nothing, from 1 to 1e9 degrees of freedom

Rates = Sequence[tuple[Sequence[float], Sequence[Hashable]]]
"""By task, its scores from 0 to 1 and the clusters that they belong to."""


def t_interval(values: ArrayLike) -> Ends | None:
    """Student's interval of the mean of independent values; None for fewer than five."""
    return mean_interval(values)


def mean_interval(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> Ends | None:
    """The interval of a weighted mean over clusters (each value its own by default).

    None for fewer than five clusters.
    """
    return _students(_clustered_mean(values, weights, clusters))


def mixed_mean_interval(values: ArrayLike, clusters: Sequence[Hashable] | None) -> Ends | None:
    """Student's interval of a mean, where clusters count as far as they differ more than their
    values do (`_mixed_mean`). None for fewer than five clusters."""
    return _students(_mixed_mean(values, clusters))


def enough(texts: Sequence[Hashable]) -> Sequence[Hashable] | None:
    """The texts of documents, as clusters; None of fewer than five, for which an interval is over
    documents and speaks of those texts alone."""
    return texts if len(set(texts)) >= FEWEST else None


def _students(mean: _Mean) -> Ends | None:
    if mean.clusters < FEWEST:
        return None
    half = t_quantile(mean.degrees) * mean.standard_error
    return mean.value - half, mean.value + half


def skewed_mean_interval(
    values: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> Ends | None:
    """The interval of a mean of values that may be skewed: Student's, transformed (Hall 1992).

    Student's alone takes the mean of skewed values for smaller than it is far too often, the more
    so the higher the confidence: rare large values are missing from most samples. Clusters count
    as far as they differ more than their values do (`_mixed_mean`).
    """
    mean = _mixed_mean(values, clusters)
    if mean.clusters < FEWEST:
        return None
    count, skewness = mean.clusters, mean.skewness
    scale = mean.standard_error * math.sqrt(count)

    def deviation(errors: float) -> float:
        """So many standard errors, of the transformed mean, back on the scale of the mean."""
        moved = errors / math.sqrt(count) - skewness / (6 * count)
        if abs(skewness) < 1e-6:
            return moved
        return 3 / skewness * (math.cbrt(1 + skewness * moved) - 1)

    errors = t_quantile(mean.degrees, confidence)
    return mean.value - scale * deviation(errors), mean.value - scale * deviation(-errors)


def detectable(
    values: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> float | None:
    """The smallest mean that an interval of such values would tell from 0 in four cases of five."""
    mean = _mixed_mean(values, clusters)
    if mean.clusters < FEWEST:
        return None
    four_of_five = t_quantile(mean.degrees, 0.6)
    return (t_quantile(mean.degrees, confidence) + four_of_five) * mean.standard_error


class _Mean(NamedTuple):
    value: float
    standard_error: float
    degrees: float
    clusters: int
    skewness: float = 0.0
    """The skewness of the clusters, corrected for their number."""


def _clustered_mean(
    values: ArrayLike, weights: ArrayLike | None, clusters: Sequence[Hashable] | None
) -> _Mean:
    """A weighted mean, its standard error and the degrees of freedom of that.

    The standard error is the jackknife's: how the mean changes as clusters are left out one by one.
    For clusters of one size it is the usual one. The degrees of freedom are Satterthwaite's for
    clusters whose means vary alike whatever their size: one less than the clusters where all weigh
    the same, and fewer where some weigh more.
    """
    values = np.asarray(values, dtype=np.float64)
    weighting = np.ones_like(values) if weights is None else np.asarray(weights, dtype=np.float64)
    of, count = _numbered(len(values), clusters)
    totals = np.bincount(of, weighting, minlength=count)
    share = totals / totals.sum()
    mean = float(weighting @ values / weighting.sum())
    if count < 2:
        return _Mean(mean, math.inf, 1.0, count)
    # From the residuals, since sums of large values would cancel to their rounding.
    residuals = np.bincount(of, weighting * (values - mean), minlength=count) / totals.sum()
    changes = residuals / (1 - share)
    error = math.sqrt(float(changes @ changes) * (count - 1) / count)
    # The squared error is the quadratic form Σ a_i (x_i − Σ share_j x_j)² of the clusters' means;
    # the sums below are the trace of its matrix, and that of the matrix squared.
    a, even = (share / (1 - share)) ** 2, float(share @ share)
    s0, s1, s2 = (float(a @ share**power) for power in range(3))
    trace = float(a @ (1 - 2 * share + even))
    crossed = even**2 * s0**2 + 2 * s2 * s0 - 4 * even * s1 * s0 + 2 * s1**2
    diagonal = float(a**2 @ ((1 - 2 * share + even) ** 2 - (even - 2 * share) ** 2))
    # Where one cluster has nearly all weight, rounding takes what is left of the differences above.
    degrees = 1.0 if share.max() > 0.999 else trace**2 / (crossed + diagonal)
    return _Mean(mean, error, degrees, count, _skewness(changes))


def _mixed_mean(values: ArrayLike, clusters: Sequence[Hashable] | None) -> _Mean:
    """A mean of values whose clusters may differ: a random effect, estimated by moments.

    Where the clusters hardly differ more than their values do, all values count as independent.
    Few clusters, or uneven ones, thus tell far more than by `_clustered_mean`, which needs less:
    there, clusters of different sizes may also vary differently. Degrees of freedom are
    Satterthwaite's, and the skewness of clusters is that of the values, since few cannot show it.
    """
    mean = _clustered_mean(values, None, clusters)
    values = np.asarray(values, dtype=np.float64)
    of, count = _numbered(len(values), clusters)
    total = len(values)
    if not 1 < count < total:
        return mean
    sizes = np.bincount(of, minlength=count)
    means = np.bincount(of, values, minlength=count) / sizes
    within = float(((values - means[of]) ** 2).sum())
    between = float(sizes @ (means - mean.value) ** 2)
    of_values, of_clusters = within / (total - count), between / (count - 1)
    if of_clusters <= MATTERS * of_values:
        squared, degrees = (within + between) / (total - 1) / total, total - 1.0
    else:
        uneven = float(sizes @ sizes) / total
        part = uneven / total * (count - 1) / (total - uneven)
        first, second = part * of_clusters, (1 / total - part) * of_values
        squared = first + second
        degrees = squared**2 / (first**2 / (count - 1) + second**2 / (total - count))
    # Of a mean over as many independent values as there are degrees of freedom.
    skewness = _skewness(values - mean.value) * math.sqrt(count / (degrees + 1))
    return _Mean(mean.value, math.sqrt(squared), degrees, count, skewness)


def _skewness(changes: NDArray[np.float64]) -> float:
    """Fisher's, corrected for the number of values; 0 for too few of them, or equal ones."""
    count, spread = len(changes), float(changes @ changes) / len(changes)
    if count < 3 or not spread:
        return 0.0
    plain = float((changes**3).mean()) / spread**1.5
    return float(plain * math.sqrt(count * (count - 1)) / (count - 2))


def _numbered(count: int, clusters: Sequence[Hashable] | None) -> tuple[NDArray[np.intp], int]:
    """The number of each sample's cluster, and how many clusters there are."""
    names = range(count) if clusters is None else clusters
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([place[name] for name in names], dtype=np.intp), len(place)


@lru_cache(maxsize=4096)
def t_quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """The reach of an interval to each side in standard errors, by bisection."""
    low, high = 0.0, 1.0
    while _t_beyond(high, degrees) > 1 - confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_beyond(middle, degrees) > 1 - confidence else (low, middle)
    return (low + high) / 2


def _t_beyond(t: float, degrees: float) -> float:
    """The chance of more than |t|: an incomplete beta function."""
    x = degrees / (degrees + t * t)
    if x < (degrees + 2) / (degrees + 5):
        return _beta_share(x, degrees / 2, 0.5)
    return 1 - _beta_share(1 - x, 0.5, degrees / 2)


def _beta_share(x: float, a: float, b: float) -> float:
    """I_x(a, b) for x below (a + 1) / (a + b + 2), by its continued fraction (DLMF 8.17.22)."""
    if x == 0:
        return 0.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    fraction = 1.0
    for m in range(TERMS, 0, -1):
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + odd / (1 + even / fraction)
    return front / fraction


def _t_test(mean: _Mean) -> float | None:
    """The two-sided p-value of a mean of 0; below 5% exactly where the interval leaves out 0."""
    if mean.clusters < FEWEST:
        return None
    if mean.standard_error == 0:
        return 1.0 if mean.value == 0 else 0.0
    return _t_beyond(mean.value / mean.standard_error, mean.degrees)


def _clustered_rates_test(mean: _Mean) -> float | None:
    """Student's t, but no smaller than the signs of so many clusters allow.

    Where all clusters agree exactly, t would be certain of it, from five as from fifty.
    """
    p_value = _t_test(mean)
    return None if p_value is None else max(p_value, min(1.0, 2.0 ** (1 - mean.clusters)))


def wilson(right: float, total: float, z: float | None = None) -> Ends:
    """The score interval of a rate (Wilson 1927), `z` standard errors to each side.

    Without `z`, as many as contain 95% of a normal distribution.
    """
    assert 0 <= right <= total
    assert total > 0
    z2 = (NormalDist().inv_cdf((1 + CONFIDENCE) / 2) if z is None else z) ** 2
    rate = right / total
    middle = (rate + z2 / (2 * total)) / (1 + z2 / total)
    half = math.sqrt(z2 * (rate * (1 - rate) / total + z2 / (4 * total**2))) / (1 + z2 / total)
    # At the ends the formula gives exactly 0 and 1; rounding must not spoil that.
    return (
        0.0 if right == 0 else max(0.0, middle - half),
        1.0 if right == total else min(1.0, middle + half),
    )


def rate_interval(
    right: Sequence[float], clusters: Sequence[Hashable] | None = None
) -> Ends | None:
    """The interval of a mean of scores from 0 to 1: Wilson's for independent samples, else over
    clusters.

    None for fewer than five clusters.
    """
    values = np.asarray(right, dtype=np.float64)
    mean = _clustered_mean(values, None, clusters)
    if mean.clusters < FEWEST:
        return None
    size = _effective(values, mean)
    return wilson(sum(right) * size.share, len(right) * size.share, size.z)


class _Effective(NamedTuple):
    """The number of independent samples that would be as sure as the clustered ones."""

    share: float
    """The share of the samples."""
    z: float | None
    """The reach of an interval in standard errors; None for the normal distribution's."""


def _effective(values: NDArray[np.float64], mean: _Mean) -> _Effective:
    """The share is 1 where each sample is its own cluster."""
    if mean.clusters == len(values):
        return _Effective(1.0, None)
    independent = float(values.var()) / len(values)
    # Where all samples agree, how alike those of a cluster are is unknown: take one of each.
    share = mean.clusters / len(values)
    if independent > 0 and mean.standard_error > 0:
        share = min(1.0, independent / mean.standard_error**2)
    return _Effective(share, t_quantile(mean.degrees))


def shares_interval(
    shares: Sequence[float],
    size: float,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> Ends | None:
    """The interval of a mean of shares, each of `size` answers to one document's questions.

    Wilson's for as many independent answers as would be as sure: at most as many as there are.
    None for fewer than five documents.
    """
    mean = _mixed_mean(shares, clusters)
    if mean.clusters < FEWEST:
        return None
    total = size * len(shares)
    independent = mean.value * (1 - mean.value) / total
    if independent > 0 and mean.standard_error > 0:
        total *= min(1.0, independent / mean.standard_error**2)
    return wilson(mean.value * total, total, NormalDist().inv_cdf((1 + confidence) / 2))


def mean_rate(tasks: Rates) -> float:
    """The mean over tasks, which count alike."""
    return float(np.mean([np.mean(scores) for scores, _ in tasks]))


def mean_rate_interval(tasks: Rates) -> Ends | None:
    """The interval of a mean over tasks: Wilson's for as many independent samples as are as sure.

    None for fewer than five clusters in all.
    """
    mean = _stratified(tasks)
    if mean.clusters < FEWEST:
        return None
    rate, total = mean_rate(tasks), sum(len(scores) for scores, _ in tasks)
    size = 1 / float(np.mean([1 / len(scores) for scores, _ in tasks])) * len(tasks)
    # Of pooled answers, the variance between tasks is a part. Its share is estimated with an answer
    # more of each kind, so that a task with every answer right is not taken for certain.
    if all(len(scores) >= FEWEST for scores, _ in tasks):
        softened = [((sum(scores) + 1) / (len(scores) + 2), len(scores)) for scores, _ in tasks]
        middle = float(np.mean([chance for chance, _ in softened]))
        within = sum(chance * (1 - chance) / (count - 1) for chance, count in softened)
        size = max(size, middle * (1 - middle) * len(tasks) ** 2 / within)
    if mean.clusters == total:
        return wilson(rate * size, size)
    independent = sum(float(np.var(scores)) / len(scores) for scores, _ in tasks) / len(tasks) ** 2
    share = mean.clusters / total
    if independent > ROUNDING and mean.standard_error > ROUNDING:
        share = min(1.0, independent / mean.standard_error**2)
    return wilson(rate * size * share, size * share, t_quantile(mean.degrees))


def difference_interval(first: Rates, second: Rates, times: float = 1.0) -> Ends | None:
    """The interval of one mean over tasks minus a multiple of another.

    The two are as correlated as the clusters that they share show.
    """
    one, two = mean_rate_interval(first), mean_rate_interval(second)
    if one is None or two is None:
        return None
    phi = _correlation(first, second)
    return _newcombe(mean_rate(first), one, mean_rate(second), two, phi, times)


def _newcombe(
    one: float, ends: Ends, two: float, other: Ends, phi: float, times: float = 1.0
) -> Ends:
    """The interval of one rate minus a multiple of another (Newcombe 1998, method 10), from that of
    each and their correlation."""

    def joined(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))

    difference = one - times * two
    return (
        difference - joined(one - ends[0], times * (other[1] - two)),
        difference + joined(ends[1] - one, times * (two - other[0])),
    )


def compare_mean_rates(first: Rates, second: Rates) -> PairedComparison:
    """Two methods' means over tasks on the same samples, in the same order.

    The p-value is Student's t over the clusters within tasks, and no smaller than the signs of
    those that differ allow.
    """
    differences = [
        (np.subtract(a, b).tolist(), clusters)
        for (a, clusters), (b, _) in zip(first, second, strict=True)
    ]
    mean, p_value = _stratified(differences), None
    if (ends := difference_interval(first, second)) is not None:
        differing = {
            name
            for values, names in differences
            for difference, name in zip(values, names, strict=True)
            if difference
        }
        least = min(1.0, 2.0 ** (1 - len(differing)))
        p_value = max(_t_test(mean) or 0.0, least)
    pairs = sum(len(values) for values, _ in differences)
    return PairedComparison.of(pairs, mean.value, ends, p_value, "difference")


def _stratified(tasks: Rates) -> _Mean:
    """The mean over tasks, with the error that comes from within them."""
    within = np.concatenate([_deviations(scores, clusters) for scores, clusters in tasks])
    weights = np.concatenate([np.full(len(scores), 1 / len(scores)) for scores, _ in tasks])
    names = [name for _, clusters in tasks for name in clusters]
    mean = _clustered_mean(within, weights, names)
    error = 0.0 if mean.standard_error < ROUNDING else mean.standard_error
    return mean._replace(value=mean_rate(tasks), standard_error=error)


def _deviations(scores: Sequence[float], clusters: Sequence[Hashable]) -> NDArray[np.float64]:
    """The deviations from the task's mean, which took one degree of freedom."""
    values: NDArray[np.float64] = np.asarray(scores, dtype=np.float64)
    count = len(set(clusters))
    deviations: NDArray[np.float64] = values - values.mean()
    return deviations * math.sqrt(count / max(1, count - 1))


def _correlation(first: Rates, second: Rates) -> float:
    """The correlation of two means over tasks: 0 if they share no cluster, or one does not vary."""
    errors: list[dict[Hashable, float]] = []
    for tasks in (first, second):
        by_cluster: dict[Hashable, float] = {}
        for scores, clusters in tasks:
            shares = _deviations(scores, clusters) / len(scores)
            for name, share in zip(clusters, shares.tolist(), strict=True):
                by_cluster[name] = by_cluster.get(name, 0.0) + share
        errors.append(by_cluster)
    a, b = (math.sqrt(sum(error**2 for error in of_clusters.values())) for of_clusters in errors)
    if min(a, b) < ROUNDING:
        return 0.0
    return sum(error * errors[1].get(name, 0.0) for name, error in errors[0].items()) / (a * b)


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value that two methods differ, from the samples they disagree on."""
    total = only_first + only_second
    tail = sum(math.comb(total, i) for i in range(min(only_first, only_second) + 1))
    return min(1.0, float(2 * tail / 2**total))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for being several (Holm 1979), in the order given.

    None, if there was no test, stays None and does not count.
    """
    ranked = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(ranked):
        highest = max(highest, min(1.0, (len(ranked) - rank) * p))
        adjusted[i] = highest
    return adjusted


def p_in_words(p_value: float | None) -> str:
    return "–" if p_value is None else "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def is_significant(p_value: float | None) -> bool:
    """True if a p-value is below 0.05; None, if there was no test, is not."""
    return p_value is not None and p_value < SIGNIFICANT


@dataclass(frozen=True, eq=False)
class PairedComparison(Value):
    """The mean of one method minus that of another, on the same samples."""

    pairs: int
    difference: Interval
    p_value: float | None
    """None if there are fewer than five clusters, as with the interval."""

    @classmethod
    def of(
        cls, pairs: int, value: float, ends: Ends | None, p_value: float | None, unit: Unit
    ) -> PairedComparison:
        return cls(pairs, Interval.of(value, ends, unit), p_value)

    def __str__(self) -> str:
        return str(self.difference)


def compare_rates(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
) -> PairedComparison:
    """Two methods' scores of answers from 0 to 1 to the same samples, in the same order.

    Independent samples that are right or wrong are tested by McNemar's exact test, others by
    Student's t over clusters. Where answers are right in part, the interval is that of the t too.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    differences = a - b
    both = float(np.minimum(a, b).sum())
    only_first, only_second = (float(np.maximum(d, 0).sum()) for d in (differences, -differences))
    difference = (only_first - only_second) / len(first)
    mean = _clustered_mean(differences, None, clusters)
    students = _students(mean)
    if students is None:
        return PairedComparison.of(len(first), difference, None, None, "difference")
    whole, size = bool(np.isin([a, b], (0, 1)).all()), _effective(differences, mean)
    neither, part = len(a) - both - only_first - only_second, size.share
    ends = paired_interval(
        both * part, only_first * part, only_second * part, neither * part, size.z
    )
    if not whole and differences.std() > 0:
        ends = max(-1.0, students[0]), min(1.0, students[1])
    p_value = (
        mcnemar(int(only_first), int(only_second))
        if size.z is None and whole
        else _clustered_rates_test(mean)
    )
    return PairedComparison.of(len(first), difference, ends, p_value, "difference")


def compare_means(
    first: Sequence[float],
    second: Sequence[float],
    weights: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
) -> PairedComparison:
    """Two methods' scores of the same samples, in the same order, by Student's t over clusters."""
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    mean = _clustered_mean(differences, weights, clusters)
    test = _t_test(mean)
    return PairedComparison.of(
        len(differences), mean.value, _students(mean), test, "difference in nats"
    )


def paired_interval(
    both: float, only_first: float, only_second: float, neither: float, z: float | None = None
) -> Ends:
    """The interval of a paired difference of rates.

    Built from the two Wilson intervals and their correlation, it keeps a width where all pairs
    agree, which the spread of the differences would report as certainty.
    """
    total = both + only_first + only_second + neither
    (rate1, first), (rate2, second) = (
        (right / total, wilson(right, total, z))
        for right in (both + only_first, both + only_second)
    )
    margins = math.prod(
        (both + only_first, only_second + neither, both + only_second, only_first + neither)
    )
    excess = float(both * neither - only_first * only_second)
    if excess > 0:
        excess = max(excess - total / 2, 0.0)
    phi = excess / math.sqrt(margins) if margins else 0.0
    low, high = _newcombe(rate1, first, rate2, second, phi)
    return max(-1.0, low), min(1.0, high)
