"""The theory of a schedule, as numbers that might predict how well it works.

Each is oriented so that more of it should be worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ropewalk.schedule import RotarySchedule
from ropewalk.theory.coverage import TURN, coverage
from ropewalk.theory.decay import decay


class Case(NamedTuple):
    """A schedule, what it extends, and how far."""

    start: RotarySchedule
    schedule: RotarySchedule
    target: int


def turning_stretch(case: Case) -> float:
    """The mean of log λ over pairs that complete a turn in the original length."""
    turning = case.start.wavelengths <= case.start.length
    return float(_stretch(case)[turning].mean())


def fast_stretch(case: Case) -> float:
    """The mean of log λ over the fastest quarter of the pairs."""
    return float(_stretch(case)[: max(1, case.start.geometry.pairs // 4)].mean())


def most_stretched_fast_pair(case: Case) -> float:
    """The largest log λ of a pair that turns eight times in the original length."""
    fast = 8 * case.start.wavelengths <= case.start.length
    return float(np.abs(_stretch(case)[fast]).max(initial=0.0))


def new_pairs(case: Case) -> float:
    """The share of pairs that meet new angles."""
    found = coverage(case.schedule, case.target, trained=case.start)
    return found.out_of_distribution_share


def new_angles(case: Case) -> float:
    """The factor by which a pair exceeds the arc that training swept, as a mean of logarithms."""
    found = coverage(case.schedule, case.target, trained=case.start)
    excess = np.maximum(1.0, np.minimum(found.needed, TURN) / found.seen)
    return float(np.log(excess).mean())


def violations(case: Case) -> float:
    """The share of distances with B(m) < 0."""
    return decay(case.schedule, case.target).violations / case.target


def shortness(case: Case) -> float:
    """log(target / effective length)."""
    effective = decay(case.schedule, case.target).effective_length
    return 0.0 if effective is None else math.log(case.target / effective)


def dilution(case: Case) -> float:
    """-log m: how little attention is sharpened."""
    return math.log(case.start.attention_scaling / case.schedule.attention_scaling)


def near_change(case: Case) -> float:
    """The change of B(m) at the distances that training knew, in shares of B(0), root mean
    square."""
    distances = np.arange(1, case.start.length)
    before, after = (
        np.cos(np.outer(distances, each.inverse_frequencies)).mean(axis=1)
        for each in (case.start, case.schedule)
    )
    return float(np.sqrt(np.mean((after - before) ** 2)))


def _stretch(case: Case) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    stretch: np.ndarray[tuple[int], np.dtype[np.float64]] = np.log(
        case.schedule.rescale_factors / case.start.rescale_factors
    )
    return stretch


QUANTITIES: dict[str, Callable[[Case], float]] = {
    each.__name__: each
    for each in (
        *(turning_stretch, fast_stretch, most_stretched_fast_pair, near_change),
        *(new_pairs, new_angles, violations, shortness, dilution),
    )
}
