"""The rotation angles that training has seen, and those that a longer context meets first.

Over L positions the angle of pair i sweeps the arc [0, Lθᵢ). A fast pair has been all the way round
and knows every angle; a slow one knows only its arc, and a distance that turns it further is out of
distribution (Men et al., Fig. 2). Arcs are half-open, so that linear interpolation by exactly T/L
fits the arc that it was made to fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ropewalk.errors import InvalidValue
from ropewalk.schedule import FloatArray, RotarySchedule

TURN = 2 * np.pi
_TOLERANCE = 1e-9  # relative: λ = T/L must not miss its arc by a rounding


@dataclass(frozen=True, eq=False)
class Coverage:
    """Angles of every pair: seen in training, and needed at the target."""

    seen: FloatArray
    """The arc that training has swept, in radians; 2π if all of the circle."""
    needed: FloatArray
    """The arc that the target sweeps, in radians, not reduced."""
    new_share: FloatArray
    """The share of the target's distances whose angle lies outside the seen arc."""

    @property
    def out_of_distribution(self) -> tuple[int, ...]:
        """The pairs that meet new angles."""
        return tuple(int(i) for i in np.flatnonzero(self.new_share > 0))

    @property
    def out_of_distribution_share(self) -> float:
        return len(self.out_of_distribution) / len(self.seen)


def coverage(
    schedule: RotarySchedule, length: int, trained: RotarySchedule | None = None
) -> Coverage:
    """The angles of `schedule` up to `length`, held against those that `trained` met in its length.

    Without `trained`, the model is taken as pretraining left it.
    """
    if length < 1:
        raise InvalidValue("length", length, "must be at least 1", "give a context length")
    if trained is None:
        trained = RotarySchedule.plain(schedule.geometry)
    seen = np.minimum(trained.inverse_frequencies * trained.length, TURN)
    needed = schedule.inverse_frequencies * length
    turns, rest = np.divmod(needed, TURN)
    new = turns * (TURN - seen) + np.maximum(0.0, rest - seen)
    new = np.divide(new, needed, where=needed > 0, out=np.zeros_like(new))  # 0 where a pair rests
    fits = (seen >= TURN) | (needed <= seen * (1 + _TOLERANCE))
    return Coverage(seen, needed, np.where(fits, 0.0, new))


def critical_pair(trained: RotarySchedule) -> int | None:
    """The first pair that makes no full turn in the trained length, None if all of them do."""
    short = trained.inverse_frequencies * trained.length < TURN
    short &= trained.inverse_frequencies > 0
    return int(np.argmax(short)) if short.any() else None


def critical_dimension(trained: RotarySchedule) -> int | None:
    """LongRoPE2's critical dimension, 2⌈d/2 · log_b(L/2π)⌉, for frequencies of any kind."""
    pair = critical_pair(trained)
    return None if pair is None else 2 * pair
