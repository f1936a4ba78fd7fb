"""How sure a measured number is: intervals for rates and means, and paired comparisons. No torch.

Rates get Wilson's interval, which is honest at 0 and at 1: twenty right out of twenty are "84% or
more". Means get a bootstrap over clusters, since samples that share a layout are not independent.
Two methods are compared on the same samples: what both get right or wrong says nothing about their
difference, so the paired interval is narrower than two separate ones.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropewalk.values import Value

CONFIDENCE = 0.95
RESAMPLES = 2000
FEWEST = 5
"""Fewer clusters than these give no interval."""

Interval = tuple[float, float]


def t_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval | None:
    """Student's interval of the mean of independent values; None for fewer than five."""
    known = np.asarray(values, dtype=np.float64)
    if len(known) < FEWEST:
        return None
    mean, error = float(known.mean()), float(known.std(ddof=1)) / math.sqrt(len(known))
    half = t_quantile(len(known) - 1, confidence) * error
    return mean - half, mean + half


def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """How many standard errors an interval reaches to each side, by bisection."""
    low, high = 0.0, 1.0
    while _t_within(high, degrees) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, degrees) < confidence else (low, middle)
    return (low + high) / 2


def _t_within(t: float, degrees: int) -> float:
    """The chance of at most |t| (Abramowitz and Stegun 26.7.3 and 26.7.4, which are exact)."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= math.cos(angle) ** 2 * k / (k + 1)
    sine = math.sin(angle) * total
    return (angle + sine) * 2 / math.pi if odd else sine


def wilson(right: int, total: int, confidence: float = CONFIDENCE) -> Interval:
    """The score interval of a rate (Wilson 1927)."""
    assert 0 <= right <= total
    assert total > 0
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    rate = right / total
    middle = (rate + z2 / (2 * total)) / (1 + z2 / total)
    half = math.sqrt(z2 * (rate * (1 - rate) / total + z2 / (4 * total**2))) / (1 + z2 / total)
    # At the ends the formula gives exactly 0 and 1; rounding must not spoil that.
    return (
        0.0 if right == 0 else max(0.0, middle - half),
        1.0 if right == total else min(1.0, middle + half),
    )


def bootstrap_mean(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    clusters: Sequence[Hashable] | None = None,
    *,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """The percentile interval of a weighted mean, resampling whole clusters.

    None for fewer than two clusters: one cluster says nothing about how clusters differ.
    """
    values = np.asarray(values, dtype=np.float64)
    weighting = np.ones_like(values) if weights is None else np.asarray(weights, dtype=np.float64)
    names = list(range(len(values))) if clusters is None else list(clusters)
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    if len(place) < 2:
        return None
    of = np.array([place[name] for name in names])
    sums = np.bincount(of, values * weighting)
    totals = np.bincount(of, weighting)
    random = np.random.default_rng(seed)
    # A resample is how often each cluster was drawn.
    counts = random.multinomial(len(place), np.full(len(place), 1 / len(place)), size=RESAMPLES)
    means = (counts @ sums) / (counts @ totals)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value that two methods differ, from the samples they disagree on."""
    total = only_first + only_second
    tail = sum(math.comb(total, i) for i in range(min(only_first, only_second) + 1))
    return min(1.0, float(2 * tail / 2**total))


def sign_flip(differences: NDArray[np.float64], *, seed: int = 0, resamples: int = 10_000) -> float:
    """The two-sided p-value that paired means differ: how often random signs go as far."""
    random = np.random.default_rng(seed)
    signs = random.integers(0, 2, size=(resamples, len(differences))) * 2 - 1
    observed = abs(differences.mean())
    # Sums in another order may differ in the last bit from the observed one.
    as_far = np.abs(signs @ differences / len(differences)) >= observed * (1 - 1e-12)
    return float((as_far.sum() + 1) / (resamples + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for being several (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


@dataclass(frozen=True, eq=False)
class Comparison(Value):
    """The mean of one method minus that of another, on the same samples."""

    pairs: int
    difference: float
    low: float | None
    high: float | None
    p_value: float


def compare_rates(first: Sequence[bool], second: Sequence[bool]) -> Comparison:
    """Two methods' right and wrong answers to the same samples, in the same order."""
    table = np.zeros((2, 2), dtype=int)
    for a, b in zip(first, second, strict=True):
        table[int(a), int(b)] += 1
    both, only_first = int(table[1, 1]), int(table[1, 0])
    only_second, neither = int(table[0, 1]), int(table[0, 0])
    low, high = paired_interval(both, only_first, only_second, neither)
    return Comparison(
        pairs=len(first),
        difference=(only_first - only_second) / len(first),
        low=low,
        high=high,
        p_value=mcnemar(only_first, only_second),
    )


def compare_means(
    first: Sequence[float],
    second: Sequence[float],
    weights: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    *,
    seed: int = 0,
) -> Comparison:
    """Two methods' scores of the same samples, in the same order."""
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    interval = bootstrap_mean(differences, weights, clusters, seed=seed)
    scale = np.asarray(weights, dtype=np.float64)
    contributions = differences * scale * (len(scale) / scale.sum())
    names = list(range(len(differences))) if clusters is None else list(clusters)
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    by_cluster = np.bincount([place[name] for name in names], contributions).astype(np.float64)
    return Comparison(
        pairs=len(differences),
        difference=float(contributions.mean()),
        low=interval and interval[0],
        high=interval and interval[1],
        p_value=sign_flip(by_cluster, seed=seed),
    )


def paired_interval(both: int, only_first: int, only_second: int, neither: int) -> Interval:
    """The interval of a paired difference of rates (Newcombe 1998, method 10).

    Built from the two Wilson intervals and their correlation, it keeps a width where all pairs
    agree, which a bootstrap would report as certainty.
    """
    total = both + only_first + only_second + neither
    rate1, rate2 = (both + only_first) / total, (both + only_second) / total
    low1, high1 = wilson(both + only_first, total)
    low2, high2 = wilson(both + only_second, total)
    margins = math.prod(
        (both + only_first, only_second + neither, both + only_second, only_first + neither)
    )
    excess = float(both * neither - only_first * only_second)
    if excess > 0:
        excess = max(excess - total / 2, 0.0)
    phi = excess / math.sqrt(margins) if margins else 0.0

    def joined(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))

    difference = rate1 - rate2
    return (
        max(-1.0, difference - joined(rate1 - low1, high2 - rate2)),
        min(1.0, difference + joined(high1 - rate1, rate2 - low2)),
    )
