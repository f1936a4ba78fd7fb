"""Candidates as points of an unbounded space, so that distributions and distances can be there.

Around a centre, a point says by how much log λ of every pair changes, then log m, then
log2(1 + n̂), each in units of a change that is worth trying. Whatever it says, the candidate next to
it in the space is taken; as beyond a bound, or where factors would fall, points differ and their
candidates do not, what learns from a point should learn from where its candidate is.
"""

from __future__ import annotations

import math

import numpy as np

from ropewalk.schedule import FloatArray
from ropewalk.searching.space import Candidate, Space

FACTOR_UNIT = 0.2  # of the largest log λ
SCALING_UNIT = 0.1
KEPT_UNIT = 2.0
FARTHEST = 30.0  # e^30 is beyond any factor, and can still be computed with


class Coordinates:
    """The coordinates of candidates, seen from one of them."""

    def __init__(self, space: Space, centre: Candidate) -> None:
        self._space = space
        self._origin = _absolute(centre)
        # Never 0: a space may hold nothing but factors of 1.
        factors = np.full(space.pairs, max(0.01, FACTOR_UNIT * math.log(space.highest)))
        self._units = np.array([*factors, SCALING_UNIT, KEPT_UNIT])
        self.numbers = len(self._origin)

    def candidate(self, point: FloatArray) -> Candidate:
        """The candidate next to a point."""
        *factors, scaling, kept = np.clip(self._origin + self._units * point, -FARTHEST, FARTHEST)
        return self._space.nearest(np.exp(factors), math.exp(scaling), round(2**kept - 1))

    def point(self, candidate: Candidate) -> FloatArray:
        """The coordinates of a candidate."""
        point: FloatArray = (_absolute(candidate) - self._origin) / self._units
        return point


def _absolute(candidate: Candidate) -> FloatArray:
    kept = math.log2(1 + candidate.kept_initial_positions)
    return np.array([*np.log(candidate.factors), math.log(candidate.attention_scaling), kept])
