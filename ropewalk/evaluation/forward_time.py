"""The time that forwards take here: a model timed at two lengths, its arithmetic for all others.

A forward over n tokens multiplies each weight once a token and compares each pair of positions once
in every head. The first grows with n, the second with n². Two rates, seconds per multiplication of
either kind, follow from two lengths; timed several times after a warm-up, they give a range.
Comparing positions is never faster a multiplication than multiplying weights, so where the lengths
are too short to tell the second rate, the first stands for it.

A model of 135 million parameters takes minutes for one forward at 16k on a CPU, so the lengths are
as short, and the repetitions as few, as keep the timing itself within a minute.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ropewalk.evaluation.answering import at_once
from ropewalk.progress import Notice

REPEATS, FEWEST_REPEATS = 5, 2
BESIDES = 1.5
"""The upper end of a range, in parts of the slowest forwards."""
LONGEST_TIMED = 4096
"""A longer forward would take as long as what is estimated by it."""
PROBED = 128
"""The length of the first forward, which shows what longer ones would take."""
PATIENCE = 8.0
"""Seconds that the longest timed forward, and all forwards after the second, may take."""
LONG, NIGHT = 3600.0, 8 * 3600.0
"""Seconds beyond which a run is announced, and beyond which a smaller one is proposed."""


class Range(NamedTuple):
    """The least, the middle and the most that several timings lead to, in seconds.

    No `Interval`: the ends are extremes with a margin, which have no level of confidence.
    """

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        for unit, seconds in (("hours", 3600), ("minutes", 60)):
            if self.high >= 2 * seconds:
                low, high = (f"{end / seconds:.1f}" for end in (self.low, self.high))
                return f"{low} to {high} {unit}" if high != low else f"{high} {unit}"
        low_s, high_s = round(self.low), round(self.high)
        return f"{low_s} to {high_s} s" if high_s > low_s else f"{max(1, high_s)} s"


class Rates(NamedTuple):
    """Seconds per multiplication, of weights and of positions, once for each repetition."""

    by_weight: tuple[float, ...]
    by_position: tuple[float, ...]


@dataclass(frozen=True)
class Arithmetic:
    """The number of multiplications a forward takes."""

    weights: int
    """The weights that multiply every token: all but the table that tokens are looked up in."""
    attention: int
    """Layers times the width of all heads: half the cost of a pair of positions."""

    @classmethod
    def of(cls, model: Any) -> Arithmetic:
        from ropewalk.models.anatomy import anatomy_of

        layers = len(anatomy_of(model).layers)
        config = model.config.get_text_config()
        heads = int(config.num_attention_heads)
        head = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        embedded = model.get_input_embeddings()
        tied = model.get_output_embeddings()
        weights = sum(p.numel() for p in model.parameters())
        if tied is None or tied.weight is not embedded.weight:
            weights -= embedded.weight.numel()
        return cls(weights, layers * heads * head)

    def by_weight(self, length: int) -> float:
        return float(self.weights) * length

    def by_position(self, length: int) -> float:
        return float(self.attention) * length**2  # scores and values, each for half of the pairs

    def seconds(self, length: int, rates: Rates) -> list[float]:
        """The seconds of one forward, by each repetition."""
        return [
            weight * self.by_weight(length) + position * self.by_position(length)
            for weight, position in zip(*rates, strict=True)
        ]

    def fitted(self, timed: Sequence[tuple[int, Sequence[float]]]) -> Rates:
        """The rates that explain two lengths, for each repetition."""
        (short, first), (long, second) = timed
        table = np.array([[self.by_weight(n), self.by_position(n)] for n in (short, long)])
        by_weight, by_position = [], []
        for both in zip(first, second, strict=False):  # one may be repeated less
            weight, position = np.linalg.solve(table, both)
            if position < weight:  # the lengths cannot tell: one rate for both
                weight = position = both[1] / table[1].sum()
            by_weight.append(float(weight))
            by_position.append(float(position))
        return Rates(tuple(by_weight), tuple(by_position))


class ForwardClock(ABC):
    """A model whose forwards can be timed."""

    @property
    @abstractmethod
    def arithmetic(self) -> Arithmetic:
        """The multiplications of a forward."""

    @abstractmethod
    def seconds(self, length: int, batch: int = 1) -> float:
        """The time of a forward over so many sequences of this length."""


class ModelClock(ForwardClock):
    """A model in this process."""

    def __init__(self, model: Any) -> None:
        from ropewalk.evaluation.scoring import Scorer

        self._model, self._scorer = model, Scorer(model)

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic.of(self._model)

    def seconds(self, length: int, batch: int = 1) -> float:
        tokens = [np.zeros(length, dtype=np.int64)] * batch
        began = time.perf_counter()
        self._scorer.score(tokens, [length - 1] * batch)
        return time.perf_counter() - began


def _clock_of(model: Any) -> ForwardClock:
    return model if isinstance(model, ForwardClock) else ModelClock(model)


@dataclass(frozen=True)
class Timed:
    """A model's forwards, as they were timed here."""

    arithmetic: Arithmetic
    rates: Rates
    at: tuple[int, int]
    """The two lengths at which a forward was timed."""

    @classmethod
    def of(cls, model: Any, window: int, target: int) -> Timed:
        """Time a model, or a clock, that serves `window` tokens and is to be read at `target`."""
        clock = _clock_of(model)
        lengths = _timed_lengths(clock, window, target)
        rates = clock.arithmetic.fitted([(length, _timed(clock, length)) for length in lengths])
        return cls(clock.arithmetic, rates, lengths)

    @classmethod
    def at_once(cls, model: Any, target: int) -> Timed:
        """The same by one short forward, at one rate for both kinds of multiplication."""
        clock, length = _clock_of(model), _probed(target)
        arithmetic, seconds = clock.arithmetic, _once(clock, length)
        rate = seconds / (arithmetic.by_weight(length) + arithmetic.by_position(length))
        return cls(arithmetic, Rates((rate,), (rate,)), (length, length))

    def range(self, forwards: Sequence[tuple[int, int]], besides: float = 0.0) -> Range:
        """The range of the time of these forwards at each length, and some seconds besides."""
        totals = np.full(len(self.rates.by_weight), besides)
        for length, times in forwards:
            totals += times * np.array(self.arithmetic.seconds(length, self.rates))
        return Range(float(totals.min()), float(np.median(totals)), BESIDES * float(totals.max()))


def announce(
    model: Any,
    window: int,
    forwards: Sequence[tuple[int, int]],
    notice: Notice,
    *,
    begun: Path | None,
    what: str,
    smaller: Sequence[tuple[str, Sequence[tuple[int, int]]]],
    otherwise: str,
) -> None:
    """Say before a run that it will take long; beyond a night, name a smaller one that fits.

    One short forward decides whether it may, so a small model is not kept waiting; nor is a run
    that is resumed, whose file `begun` is there. `otherwise` is said where none fits.
    """
    if begun is not None and begun.is_file():
        return
    longest = max(length for length, _ in forwards)
    clock = _clock_of(model)
    timed = Timed.at_once(clock, longest)
    if timed.range(forwards).high < LONG:
        return
    timed = Timed.of(clock, window, longest)
    expected = timed.range(forwards)
    if expected.high < LONG:
        return
    count = sum(times for _, times in forwards)
    hours = f"{NIGHT / 3600:.0f} hours"
    # Beyond a night, the first smaller run that fits into one is named, if there is any.
    fits = next((f"; {said} fits" for said, run in smaller if timed.range(run).high <= NIGHT), None)
    if expected.high <= NIGHT:
        proposed = ""
    elif fits is not None:
        proposed = f"{fits} into {hours}"
    else:
        forward = timed.range([(longest, 1)])
        proposed = f"; no such run fits into {hours} (one forward takes {forward}), but {otherwise}"
    notice(
        f"{what} takes up to {count:,} forwards of up to {longest:,} tokens from beginning to end, "
        f"about {expected} on this machine (timed at {timed.at[0]:,} and {timed.at[1]:,} tokens)"
        f"{proposed}"
    )


def _timed_lengths(clock: ForwardClock, window: int, target: int) -> tuple[int, int]:
    """The lengths to time: as long as is bearable, and at least twice the probe."""
    long = min(target, max(LONGEST_TIMED, 2 * min(window, LONGEST_TIMED)))
    probed = _probed(long)
    seconds = _once(clock, probed)
    while long >= 4 * probed and seconds * long / probed > PATIENCE:
        long //= 2
    return min(window, long // 2), long


def _probed(longest: int) -> int:
    return max(2, min(PROBED, longest // 2))


def _once(clock: ForwardClock, length: int) -> float:
    """Seconds of one forward over one sequence, after a first one, which is slow."""
    clock.seconds(length)
    return clock.seconds(length)


def _timed(clock: ForwardClock, length: int) -> list[float]:
    """Seconds for one sequence, in a batch as large as an evaluation's if that is quick."""
    began = time.perf_counter()
    one = _once(clock, length)
    batch = max(1, min(at_once(length), int(PATIENCE / one)))
    if batch > 1:
        clock.seconds(length, batch)  # the first call of a shape is slow
    seconds: list[float] = []
    while len(seconds) < FEWEST_REPEATS or (
        len(seconds) < REPEATS and time.perf_counter() - began < PATIENCE
    ):
        seconds.append(clock.seconds(length, batch) / batch)
    return seconds
