"""The forwards that a run takes, counted before it begins.

All that it will take follows from these: tokens by adding up, seconds by a rate that was timed here
(evaluation/forward_time.py) or that a machine's data sheet states, memory by the longest of them
(estimates.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Forwards(NamedTuple):
    """Some forward passes over sequences of one length."""

    length: int
    times: int


class Needs(NamedTuple):
    """The most that a part of a run will take, and the least."""

    forwards: tuple[Forwards, ...] = ()
    processes: int = 0
    """Fresh processes that load a model library of their own."""
    least: tuple[Forwards, ...] | None = None
    """Those that it takes if it ends as early as it can; None if it always takes all of them."""

    @property
    def tokens(self) -> int:
        return tokens_in(self.forwards)

    @property
    def fewest(self) -> int:
        return self.tokens if self.least is None else tokens_in(self.least)


def tokens_in(forwards: Iterable[Forwards]) -> int:
    return sum(length * times for length, times in forwards)
