"""Spaces to search and objectives whose optimum is known."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from benchmarks.search_controls import CONTROLS
from ropewalk.scaling import longrope, yarn
from ropewalk.schedule import FloatArray, RotaryGeometry, RotarySchedule
from ropewalk.searching.space import STEPS_PER_UNIT, Candidate, Space
from ropewalk.searching.strategies import every
from tests.strategies import geometries

EVERY_STRATEGY = {**every(), **CONTROLS}
SMALL = RotaryGeometry(head_dim=16, rotary_dim=16, base=1e4, original_length=128)


def small_space(scale: int = 4, **rules: bool | float | None) -> Space:
    return Space(RotarySchedule.plain(SMALL), 128 * scale, **rules)  # type: ignore[arg-type]


def violations(space: Space, candidate: Candidate) -> Iterator[str]:
    """The rules of a space that a candidate breaks; none for a point of it."""
    if len(candidate.factors) != space.pairs:
        yield f"{len(candidate.factors)} factors for {space.pairs} pairs"
        return
    factors = np.array(candidate.factors)
    if not (space.steps(candidate) / STEPS_PER_UNIT == factors).all():
        yield "a factor between two steps of 0.01"
    if not ((factors >= space.lowest) & (factors <= space.highest)).all():
        yield f"a factor outside its range, at most {space.highest:g}"
    if (np.diff(factors) < 0).any():
        yield "factors that fall from a pair to the next"
    if candidate.kept_initial_positions not in space.kept_positions:
        yield f"n̂ = {candidate.kept_initial_positions}, which is not in its set"
    if candidate.attention_scaling not in space.scalings:
        yield f"m = {candidate.attention_scaling:g}, which is not in its set"


@dataclass(frozen=True)
class Scored:
    """Any function of a schedule as an objective of one document."""

    score: Callable[[RotarySchedule], float]
    tokens_per_document: int = 1
    documents: int = 1

    def losses(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        return np.array([[self.score(schedule)] for schedule in schedules], dtype=np.float64)


class Bowl:
    """The squared distance to a candidate, in logarithms; each document sees it somewhere else.

    The documents' own optima lie around the known one so that its mean loss is the lowest.
    """

    documents = 8
    tokens_per_document = 512

    def __init__(self, space: Space, optimum: Candidate, *, spread: float = 0.1) -> None:
        self._optimum = _place(space.schedule(optimum))
        rng = np.random.default_rng(len(self._optimum))
        shifts = rng.normal(0, spread, (self.documents, len(self._optimum)))
        self._shifts = shifts - shifts.mean(axis=0)
        self._offsets = rng.normal(2, 0.5, self.documents)
        self.asked: list[tuple[RotarySchedule, int]] = []

    def losses(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        self.asked += [(schedule, d) for schedule in schedules for d in documents]
        return np.array([[self._loss(schedule, d) for d in documents] for schedule in schedules])

    def score(self, schedule: RotarySchedule) -> float:
        return float(np.mean([self._loss(schedule, d) for d in range(self.documents)]))

    def _loss(self, schedule: RotarySchedule, document: int) -> float:
        away = _place(schedule) - self._optimum - self._shifts[document]
        return float(self._offsets[document] + (away**2).mean())


class Capricious:
    """Losses that mean nothing, some of them no numbers."""

    documents = 3
    tokens_per_document = 7

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def losses(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        return np.array([[self._loss(schedule, d) for d in documents] for schedule in schedules])

    def _loss(self, schedule: RotarySchedule, document: int) -> float:
        drawn = zlib.crc32(schedule.rescale_factors.tobytes(), document + 3 * self._seed)
        rng = np.random.default_rng(drawn)
        return float(
            rng.choice([rng.normal(), np.nan, np.inf, -np.inf], p=[0.85, 0.05, 0.05, 0.05])
        )


def _place(schedule: RotarySchedule) -> FloatArray:
    kept = 0.2 * np.log1p(schedule.kept_initial_positions)
    return np.array(
        [*np.log(schedule.rescale_factors), 5 * np.log(schedule.attention_scaling), kept]
    )


def ramp(space: Space, attention_scaling: float = 1.12, kept: int = 0) -> Candidate:
    """A candidate that is none of the hand-designed ones, inside every range."""
    share = np.clip((np.arange(space.pairs) / (space.pairs - 1) - 0.2) / 0.5, 0, 1)
    return space.nearest((0.9 * space.scale) ** share, attention_scaling, kept)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Extensions of plain and of extended models and recoveries, under every rule."""
    geometry = draw(geometries())
    geometry = replace(geometry, resting_pairs=draw(st.integers(0, geometry.pairs // 2)))
    start = RotarySchedule.plain(geometry)
    kind = draw(st.sampled_from(["plain", "yarn", "uneven"]))
    if kind == "yarn":
        start = yarn.schedule(start, 4 * start.length)
    elif kind == "uneven":
        factors = np.linspace(1, 3, geometry.pairs) ** 2
        start = longrope.schedule(start, 8 * start.length, factors=factors.tolist())
    recover = draw(st.booleans())
    if recover:
        target = draw(st.integers(1, start.length))
    else:
        target = draw(st.integers(start.length + 1, 64 * start.length))
    return Space(
        start,
        target,
        attention_scaling=draw(st.none() | st.sampled_from([1.0, 1.1386])),
        stock_runtimes=draw(st.booleans()),
        beyond_critical=not recover and draw(st.booleans()),
        recover=recover,
    )
