"""B(m): how much better a similar key scores than a random one, m positions away.

Let q have independent components of variance σ², k* = q + ε be a similar key and k a random one.
The rotation by m leaves of E[qᵀR_m k* − qᵀR_m k] only what a pair keeps of its own direction,
2σ² cos(mθᵢ), so up to 2σ²

    B(m) = Σ cos(mθᵢ)            (Men et al., Theorem 1)

and where it is negative, a random key outscores a similar one. A pair that does not rotate keeps
everything and adds 1; as attention scaling a multiplies only what rotates, by a² in the logit, such
a pair counts 1/a² here. The weighted form replaces σ² by each pair's own variance, as measured on a
model's queries and keys.

Distances are between positions that are rotated alike: kept initial positions (n̂) and log-n scaling
do not enter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ropewalk.errors import InvalidValue
from ropewalk.schedule import FloatArray, RotarySchedule

_ROW = 1024
_ROWS = 256


@dataclass(frozen=True)
class Decay:
    """The course of B(m) on the distances 0 … length − 1."""

    length: int
    first_violation: int | None
    """The smallest m with B(m) < 0; None if there is none below `length`."""
    violations: int
    """The number of distances with B(m) < 0."""
    least: float
    """The smallest B(m), as a share of B(0)."""

    @property
    def effective_length(self) -> int | None:
        """L_θ (Eq. 17) counted in positions: 0 … L_θ − 1 are fine. None if all of them are."""
        return self.first_violation


def decay(schedule: RotarySchedule, length: int, variances: ArrayLike | None = None) -> Decay:
    """B(m) at every distance below `length`, summed up."""
    if length < 1:
        raise InvalidValue("length", length, "must be at least 1", "give a context length")
    first: int | None = None
    violations = 0
    least = math.inf
    for start, values in _curves(schedule, length, variances):
        negative = values < 0
        count = int(np.count_nonzero(negative))
        if count and first is None:
            first = start + int(np.argmax(negative))
        violations += count
        least = min(least, float(values.min()))
    return Decay(length, first, violations, least / float(pair_weights(schedule, variances).sum()))


def pair_weights(schedule: RotarySchedule, variances: ArrayLike | None = None) -> FloatArray:
    """The weight of each pair of the head in B, those that rotate first."""
    geometry = schedule.geometry
    pairs = geometry.head_dim // 2
    weights = np.ones(pairs) if variances is None else np.array(variances, dtype=np.float64)
    if weights.shape != (pairs,) or not np.all(weights >= 0) or not weights.sum() > 0:
        raise InvalidValue(
            "variances",
            weights.tolist(),
            f"a head of {geometry.head_dim} has {pairs} pairs, each with a variance of at least 0",
            "give one number for each pair, rotating pairs first",
        )
    weights[geometry.pairs :] /= schedule.attention_scaling**2
    return weights


def similarity_advantage(
    schedule: RotarySchedule, distances: ArrayLike, variances: ArrayLike | None = None
) -> FloatArray:
    """B(m) at each distance m, whole or not."""
    weights = pair_weights(schedule, variances)
    turning = schedule.geometry.pairs
    angles = np.multiply.outer(np.asarray(distances, np.float64), schedule.inverse_frequencies)
    return np.asarray(np.cos(angles) @ weights[:turning] + weights[turning:].sum())


def _curves(
    schedule: RotarySchedule, length: int, variances: ArrayLike | None
) -> Iterator[tuple[int, FloatArray]]:
    """(start, B at start, start + 1, …) in pieces, as products of rotations: a million in 20 ms."""
    weights = pair_weights(schedule, variances)
    turning = schedule.geometry.pairs
    frequencies = schedule.inverse_frequencies
    at_rest = float(weights[turning:].sum())
    columns = np.multiply.outer(frequencies, np.arange(_ROW))
    table = np.concatenate([np.cos(columns), np.sin(columns)])
    for start in range(0, length, _ROW * _ROWS):
        stop = min(length, start + _ROW * _ROWS)
        rows = np.multiply.outer(np.arange(start, stop, _ROW), frequencies)
        turned = np.concatenate(
            [np.cos(rows) * weights[:turning], -np.sin(rows) * weights[:turning]], axis=1
        )
        yield start, (turned @ table).ravel()[: stop - start] + at_rest


def score_bound(schedule: RotarySchedule, distances: ArrayLike) -> FloatArray:
    """Σₙ |Sₙ|, Sₙ = Σ_{l<n} exp(i·mθ_l): the attention score's upper bound (Eq. 14) at distance m.

    Abel's summation of Σ h_l exp(i·mθ_l) gives |score| ≤ max |h_l − h_{l+1}| · Σ |Sₙ|, so this is
    the part of the bound that distance changes. Pairs that do not rotate are angles of 0.
    """
    geometry = schedule.geometry
    angles = np.multiply.outer(np.asarray(distances, np.float64), schedule.inverse_frequencies)
    at_rest = np.zeros((*angles.shape[:-1], geometry.head_dim // 2 - geometry.pairs))
    turns = np.exp(1j * np.concatenate([angles, at_rest], axis=-1))
    return np.asarray(np.abs(np.cumsum(turns, axis=-1)).sum(axis=-1))
