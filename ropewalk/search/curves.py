"""Candidates as points of an unbounded space, so that a normal distribution can be over them.

Around a centre, a point moves log λ by straight lines between knots over the pairs, and log m by
its last number. Whatever it says, the candidate next to it in the space is taken.
"""

from __future__ import annotations

import math

import numpy as np

from ropewalk.schedule import FloatArray
from ropewalk.search.space import Candidate, Space, monotone

FARTHEST = 30.0  # e^30 is beyond any factor, and can still be computed with


class Curves:
    """The candidates around another that so many knots can reach."""

    def __init__(self, space: Space, centre: Candidate, knots: int | None = None) -> None:
        """`knots` is how many numbers describe the change of λ; None for one a pair."""
        self._space, self._centre = space, centre
        self._lowest, self._highest = np.log(space.lowest), math.log(space.highest)
        self._log_factors = np.log(centre.factors)
        self._log_scaling = math.log(centre.attention_scaling)
        count = min(knots or space.pairs, space.pairs)
        places = np.linspace(0, space.pairs - 1, count)
        self._lines = np.stack(
            [np.interp(np.arange(space.pairs), places, unit) for unit in np.eye(count)], axis=1
        )
        self._flat = np.linalg.pinv(self._lines)
        self.numbers = count + 1

    def candidate(self, point: FloatArray) -> Candidate:
        scaling = np.clip(self._log_scaling + point[-1], -FARTHEST, FARTHEST)
        return self._space.nearest(
            np.exp(self._ordered(point)),
            math.exp(scaling),
            self._centre.kept_initial_positions,
        )

    def inside(self, point: FloatArray) -> FloatArray:
        """The point that says itself what the space makes of it: what a search should learn from.

        Beyond a bound, or where factors would fall, points differ and their candidates do not, and
        a distribution that learns from the points as drawn drifts there and stays.
        """
        change = self._flat @ (self._ordered(point) - self._log_factors)
        lowest, highest = np.log(self._space.scalings[[0, -1]]).tolist()
        scaling = min(max(self._log_scaling + point[-1], lowest), highest) - self._log_scaling
        return np.array([*change, scaling])

    def _ordered(self, point: FloatArray) -> FloatArray:
        """log λ in its range and never falling, not yet on the grid."""
        moved = self._log_factors + self._lines @ point[:-1]
        return monotone(np.clip(moved, self._lowest, self._highest))
