"""The space of a search: LongRoPE's Table 4, with the attention scaling next to it.

A candidate is one rescale factor λ a pair, from 1 to 2·s in steps of 0.01 and never falling from
a pair to the next slower one, a number n̂ of initial positions that keep their angles, and an
attention scaling m. λ and m are over what the start has, so that a search on an extended model
composes on it; with `recover` λ is over the plain frequencies, since a short context wants less of
the extension that is there. A pair that rests (`resting_pairs`) has no λ here.

Two constraints may be asked for: `stock_runtimes` holds n̂ at 0, which is all that a stock runtime
can express, and `beyond_critical` is LongRoPE2's: a pair that never completed a turn within the
trained length has λ of at least s. In recovery there is no s, so it is refused there.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropewalk.errors import InvalidValue
from ropewalk.lengths import format_length
from ropewalk.scaling import linear, llama3, log_growth, longrope, named, ntk, ntk_mixed, yarn
from ropewalk.schedule import FloatArray, Recipe, RotarySchedule
from ropewalk.values import Members

STEPS_PER_UNIT = 100  # λ and m move in steps of 0.01
HEADROOM = 2.0
"""The largest factor, in multiples of s. LongRoPE's 1.25 is too little at 8 times the length."""
KEPT_POSITIONS = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 64, 128, 256)
SEEDS = ("linear", "ntk", "yarn")
LOWEST_SCALING = 0.8
# YaRN's attention grows by 0.1 ln s; three times that is more than any model has asked for.
STEEPEST_GROWTH = 3.0

Steps = NDArray[np.int64]
"""A factor or a scaling counted in steps: 104 stands for 1.04, exactly."""


@dataclass(frozen=True)
class Candidate(Members):
    """A point of the space."""

    _optional = ("recipe",)

    factors: tuple[float, ...]
    kept_initial_positions: int = 0
    attention_scaling: float = 1.0
    recipe: Recipe | None = None
    """The method whose schedule this stands for exactly; its factors and m are rounded above."""


@dataclass(frozen=True)
class Space:
    """All candidates for a start and a target."""

    start: RotarySchedule
    target_length: int
    attention_scaling: float | None = None
    """m, if it is fixed; None to search it."""
    stock_runtimes: bool = False
    beyond_critical: bool = False
    recover: bool = False
    """Search factors for a context that the start already serves."""
    highest_factor: float | None = None
    """2·s unless given; in recovery twice the root of the start's largest factor."""

    def __post_init__(self) -> None:
        # A search either extends or recovers, and which one its target shows.
        served = self.start.length
        if self.recover and self.target_length > served:
            raise InvalidValue(
                "to",
                self.target_length,
                f"recovery is for lengths that the model already serves, at most {served}",
                "give a shorter target, or search without recovery",
            )
        if not self.recover and self.target_length <= served:
            raise InvalidValue(
                "to",
                self.target_length,
                f"must be above {served}, the length that the model already serves",
                f"give a target above {format_length(served)}, or request short-context recovery "
                "(`recover`)",
            )
        # Bounds of the factors that contradict each other leave an empty space.
        if self.recover and self.beyond_critical:
            raise InvalidValue(
                "beyond_critical",
                self.beyond_critical,
                "bounds the factors of an extension, and recovery extends nothing",
                "leave `beyond_critical` or `recover` out",
            )

    @property
    def scale(self) -> float:
        """s."""
        return self.target_length / self.start.length

    @property
    def pairs(self) -> int:
        """The number of pairs that turn: a factor of a pair that rests says nothing."""
        return self.start.geometry.turning_pairs

    @property
    def _present(self) -> FloatArray:
        """The factors of the start."""
        return self.start.rescale_factors[: self.pairs]

    @cached_property
    def highest(self) -> float:
        """The largest factor of the grid."""
        limit = self.highest_factor
        if limit is None:
            reach = math.sqrt(self._present.max()) if self.recover else self.scale
            limit = HEADROOM * max(1.0, reach)
        # The tolerance keeps 1.25 · 1.04 = 1.3 on the grid, which floats put just below it.
        return math.floor(limit * STEPS_PER_UNIT + 1e-6) / STEPS_PER_UNIT

    @cached_property
    def lowest(self) -> FloatArray:
        """The smallest factor of each pair."""
        lowest = np.ones(self.pairs)
        if self.beyond_critical:
            lowest[self.critical_pair :] = math.ceil(self.scale * STEPS_PER_UNIT) / STEPS_PER_UNIT
        return np.minimum(lowest, self.highest)

    @property
    def critical_pair(self) -> int:
        """⌈(d/2)·log_base(L/2π)⌉: the first, from 0, without a full turn in the length served."""
        return int((self.start.wavelengths[: self.pairs] <= self.start.length).sum())

    @cached_property
    def scalings(self) -> FloatArray:
        """The values of m, ascending."""
        if self.attention_scaling is not None:
            return np.array([self.attention_scaling])
        top = log_growth(self.scale, STEEPEST_GROWTH)
        steps = np.arange(
            round(LOWEST_SCALING * STEPS_PER_UNIT), math.floor(top * STEPS_PER_UNIT) + 1
        )
        return steps / STEPS_PER_UNIT

    @cached_property
    def kept_positions(self) -> tuple[int, ...]:
        """The values of n̂, ascending."""
        if self.stock_runtimes:
            return KEPT_POSITIONS[:1]
        return tuple(kept for kept in KEPT_POSITIONS if kept < self.target_length)

    def nearest(
        self, factors: ArrayLike, attention_scaling: float = 1.0, kept_initial_positions: int = 0
    ) -> Candidate:
        """The candidate next to given values: in the ranges, on the grid, never falling."""
        clipped = np.clip(np.asarray(factors, dtype=np.float64), self.lowest, self.highest)
        steps = np.rint(monotone(clipped) * STEPS_PER_UNIT)
        return self.at(
            steps.astype(np.int64),
            float(self.scalings[np.abs(self.scalings - attention_scaling).argmin()]),
            min(self.kept_positions, key=lambda kept: abs(kept - kept_initial_positions)),
        )

    def at(self, steps: Steps, attention_scaling: float, kept_initial_positions: int) -> Candidate:
        """The candidate of factors counted in steps."""
        factors = tuple((steps / STEPS_PER_UNIT).tolist())
        return Candidate(factors, kept_initial_positions, attention_scaling)

    def of_method(self, schedule: RotarySchedule) -> Candidate:
        """The candidate of a method's own schedule, which `schedule` makes again without rounding.

        Its recipe stays, so a runtime that knows the method needs no list of factors.
        """
        [candidate] = self._distinct(schedule)
        return dataclasses.replace(candidate, recipe=schedule.recipe[-1])

    def steps(self, candidate: Candidate) -> Steps:
        steps: Steps = np.rint(np.array(candidate.factors) * STEPS_PER_UNIT).astype(np.int64)
        return steps

    def bounds_met(self, candidate: Candidate) -> tuple[str, ...]:
        """The ends of the space that a candidate lies on: better ones may lie beyond.

        A factor of 1 is no such end: it leaves a pair as pretraining had it.
        """
        met: list[str] = []
        if candidate.recipe is not None:
            return ()  # the ends of a method's own parameters are those of its strategy
        at_most = int((np.array(candidate.factors) == self.highest).sum())
        if at_most:
            met.append(
                f"{at_most} of {self.pairs} rescale factors are {self.highest:g}, the largest that "
                "is searched"
            )
        if len(self.scalings) > 1:
            for end, said in ((self.scalings[0], "smallest"), (self.scalings[-1], "largest")):
                if candidate.attention_scaling == end:
                    met.append(f"the attention scaling is {end:g}, the {said} that is searched")
        kept = self.kept_positions
        if len(kept) > 1 and candidate.kept_initial_positions == kept[-1]:
            met.append(f"n̂ is {kept[-1]}, the largest that is searched")
        return tuple(met)

    def schedule(self, candidate: Candidate) -> RotarySchedule:
        """The schedule that a candidate stands for; its recipe is `longrope`, or its own."""
        if candidate.recipe is not None:
            values = dict(candidate.recipe.parameters)
            return named(candidate.recipe.method)(self.start, values.pop("target_length"), **values)
        factors = np.array(candidate.factors)
        if self.recover:
            factors = factors / self._present
        resting = [1.0] * self.start.geometry.resting_pairs
        start = self.start
        if candidate.kept_initial_positions != start.kept_initial_positions:
            kept = candidate.kept_initial_positions
            start = dataclasses.replace(start, kept_initial_positions=kept)
        return longrope.schedule(
            start,
            self.target_length,
            factors=[*factors.tolist(), *resting],
            attention_factor=candidate.attention_scaling,
            recover=self.recover,
        )

    def seeds(self) -> tuple[Candidate, ...]:
        """The three that LongRoPE starts from: linear, NTK and YaRN.

        In recovery they make no sense, and the plain frequencies, the start as it is and their
        geometric mean take their place. Where two of them meet on the grid, one is left.
        """
        if self.recover:
            present = self._present
            return self._distinct(np.ones(self.pairs), present, np.sqrt(present))
        return self._distinct(*(self._by_hand[name] for name in SEEDS if name in self._by_hand))

    def hand_designed(self) -> tuple[Candidate, ...]:
        """The hand-designed methods that are worth starting from."""
        return self.seeds() if self.recover else self._distinct(*self._by_hand.values())

    @cached_property
    def _by_hand(self) -> dict[str, RotarySchedule]:
        start, target = self.start, self.target_length
        if start.geometric_base is None:
            # YaRN's ramp by wavelength, which any frequencies have.
            ramp = llama3.schedule(start, target, low_freq_factor=1.0, high_freq_factor=32.0)
            growth = start.attention_scaling * log_growth(self.scale)
            ramp = dataclasses.replace(ramp, attention_scaling=growth)
        else:
            ramp = yarn.schedule(start, target)
        schedules = {"linear": linear.schedule(start, target)}
        if self.pairs > 1:  # NTK shares the stretch among pairs
            schedules["ntk"] = ntk.schedule(start, target)
        return schedules | {"yarn": ramp, "ntk_mixed": ntk_mixed.schedule(start, target)}

    def _distinct(self, *items: RotarySchedule | FloatArray) -> tuple[Candidate, ...]:
        candidates = []
        for item in items:
            if isinstance(item, RotarySchedule):
                factors = item.rescale_factors[: self.pairs] / self._present
                scaling = item.attention_scaling / self.start.attention_scaling
            else:
                factors, scaling = item, 1.0
            candidates.append(self.nearest(factors, scaling))
        return tuple(dict.fromkeys(candidates))


def monotone(values: FloatArray) -> FloatArray:
    """The nearest sequence that never falls: what falls is pooled until it no longer does."""
    means: list[float] = []
    counts: list[int] = []
    for value in values.tolist():
        means.append(value)
        counts.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            count = counts[-2] + counts[-1]
            mean = (means[-2] * counts[-2] + means[-1] * counts[-1]) / count
            means[-2:], counts[-2:] = [mean], [count]
    return np.repeat(means, counts)
