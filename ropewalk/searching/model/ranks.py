"""Measuring over the ranks of `torchrun`, every rank or group of ranks with a copy of the model.

Rank 0 searches, the others serve it. A request is many pairs of a schedule and a document; whoever
is free takes the next pair from a counter in the store that the ranks meet in, so nobody waits
longer than one pair takes. Each pair is one forward of its own, and its values travel as the digits
that give the same floats back: the answer is the same whatever the number of ranks.

Ranks that share a copy call it in step. If each holds its heads (dividing.py), they compute one
pair together. If each holds its part of every layer (sharding.py), the first of them draws as many
pairs as they are and tells the others, and each computes its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import numpy as np

from ropewalk.models.ranks import StoreRanks
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.model.measure import DocumentMeasure, Measure, without_failures
from ropewalk.torchrun import Ranks
from ropewalk.untrusted import parse_json

One = Callable[[RotarySchedule, int], FloatArray]
"""The measurement of a schedule on a document."""

_END = "end"


@contextmanager
def measuring(ranks: Ranks, local: DocumentMeasure) -> Iterator[Measure | None]:
    """The measure that all ranks work on, for rank 0; None for the others, which have served it."""
    if not isinstance(ranks, StoreRanks):
        yield local
        return
    shared = SharedMeasure(ranks, local.one)
    if ranks.rank > 0:
        shared.serve()
        yield None
    else:
        yield shared
        shared.close()


class SharedMeasure:
    """A measure whose pairs all ranks take from one counter."""

    def __init__(self, ranks: StoreRanks, one: One) -> None:
        self._ranks, self._one = ranks, one
        self._requests = 0

    def __call__(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        """For rank 0: ask the others, and measure with them."""
        number = self._requests
        self._requests += 1
        request = json.dumps([[s.to_json() for s in schedules], [int(d) for d in documents]])
        self._ranks.put(f"request/{number}", request)
        self._work(number, request)
        pairs = range(len(schedules) * len(documents))
        values = [self._ranks.awaited(f"value/{number}/{pair}").split() for pair in pairs]
        rows = np.array([[float(value) for value in row] for row in values])
        return without_failures(rows.reshape(len(schedules), len(documents), -1))

    def close(self) -> None:
        """For rank 0, after its last request; it may hold the store, so it leaves last."""
        self._ranks.put(f"request/{self._requests}", _END)
        if self._ranks.size > 1:
            self._ranks.awaited("all gone")

    def serve(self) -> None:
        """For the others: measure what rank 0 asks for, until it needs no more."""
        ranks = self._ranks
        for number in count():
            request = ranks.awaited(f"request/{number}")
            if request == _END:
                break
            self._work(number, request)
        if ranks.add("gone", 1) == ranks.size - 1:
            ranks.put("all gone", "")

    def _work(self, number: int, request: str) -> None:
        """Take pairs of a request until there are none left."""
        ranks, (schedules, documents) = self._ranks, _read(request)
        pairs = len(schedules) * len(documents)
        for turn in count():
            first = self._drawn(number, turn)
            if first >= pairs:
                break
            # Where pairs run out, the rest of the group computes the last one too: in step.
            pair = min(first + ranks.member, pairs - 1) if ranks.by_layers else first
            schedule, document = divmod(pair, len(documents))
            values = self._one(schedules[schedule], documents[document])
            if ranks.by_layers or ranks.member == 0:
                # NaN is no JSON, and repr gives every float back.
                ranks.put(f"value/{number}/{pair}", " ".join(map(repr, values.tolist())))

    def _drawn(self, number: int, turn: int) -> int:
        """The first of the pairs that the group takes in a turn of a request."""
        ranks = self._ranks
        key = f"turn/{number}/{ranks.copy}/{turn}"
        if ranks.member > 0:
            return int(ranks.awaited(key))
        drawn = ranks.per_copy if ranks.by_layers else 1
        first = ranks.add(f"next/{number}", drawn) - drawn
        if ranks.per_copy > 1:
            ranks.put(key, str(first))
        return first


def _read(request: str) -> tuple[list[RotarySchedule], list[int]]:
    value = parse_json(request, source="request")
    assert isinstance(value, list)
    schedules, documents = value
    return [RotarySchedule.from_json(schedule) for schedule in schedules], documents
