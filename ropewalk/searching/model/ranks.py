"""Measuring over the ranks of `torchrun`, every rank or group of ranks with a copy of the model.

Rank 0 searches, the others serve it. A request is many pairs of a schedule and a document; whoever
is free takes the next pair from a counter in the store that the ranks meet in, so nobody waits
longer than one pair takes. Each pair is one forward of its own, and its values travel as the digits
that give the same floats back: the answer is the same whatever the number of ranks.

Ranks that share a copy call it in step. Where each holds its heads (dividing.py), they compute one
pair together. Where each holds its part of every layer (sharding.py), the first of them draws as
many pairs as they are and tells the others, and each computes its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Self

import numpy as np
import torch

from ropewalk.models.ranks import Ranks
from ropewalk.models.sharding import shard
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.model.measure import without_failures
from ropewalk.untrusted import parse_json

One = Callable[[RotarySchedule, int], FloatArray]
"""The measurement of a schedule on a document."""

_END = "end"


class SearchRanks(Ranks):
    """Ranks of which the first one searches, and the others measure for it."""

    by_heads = False
    """True if the ranks of a copy hold its heads, and so compute each pair together."""

    def apart(self, name: str) -> Self:
        found = super().apart(name)
        found.by_heads = self.by_heads
        return found

    def place(self, model: Any, device: torch.device) -> None:
        """Put a model on the device: a whole one, or this rank's part of its group's."""
        if self.per_copy == 1:
            model.to(device)
            return
        shard(model, device, self.meet(device))

    def measure(self, one: One) -> SharedMeasure:
        """For rank 0: a measure that all ranks work on."""
        return SharedMeasure(self, one)

    def serve(self, one: One) -> None:
        """For the others: measure what rank 0 asks for, until it needs no more."""
        for number in count():
            request = self.awaited(f"request/{number}")
            if request == _END:
                break
            self.work(number, request, one)
        if self.add("gone", 1) == self.size - 1:
            self.put("all gone", "")

    def dismiss(self, number: int) -> None:
        """For rank 0, after its last request; it may hold the store, so it leaves last."""
        self.put(f"request/{number}", _END)
        if self.size > 1:
            self.awaited("all gone")

    def ask(self, number: int, request: str) -> None:
        """For rank 0: let the others begin."""
        self.put(f"request/{number}", request)

    def work(self, number: int, request: str, one: One) -> None:
        """Take pairs of a request until there are none left."""
        schedules, documents = _read(request)
        pairs = len(schedules) * len(documents)
        for turn in count():
            first = self._drawn(number, turn)
            if first >= pairs:
                break
            # Where pairs run out, the rest of the group computes the last one too: in step.
            pair = first if self.by_heads else min(first + self.member, pairs - 1)
            schedule, document = divmod(pair, len(documents))
            values = one(schedules[schedule], documents[document])
            if self.by_heads and self.member > 0:
                continue
            # NaN is no JSON, and repr gives every float back.
            self.put(f"value/{number}/{pair}", " ".join(map(repr, values.tolist())))

    def value(self, number: int, pair: int) -> list[float]:
        text: str = self.awaited(f"value/{number}/{pair}")
        return [float(value) for value in text.split()]

    def _drawn(self, number: int, turn: int) -> int:
        """The first of the pairs that the group takes in a turn of a request."""
        told = f"turn/{number}/{self.copy}/{turn}"
        if self.member > 0:
            return int(self.awaited(told))
        drawn = 1 if self.by_heads else self.per_copy
        first = self.add(f"next/{number}", drawn) - drawn
        if self.per_copy > 1:
            self.put(told, str(first))
        return first


class SharedMeasure:
    """A measure whose pairs all ranks take from one counter."""

    def __init__(self, ranks: SearchRanks, one: One) -> None:
        self._ranks, self._one = ranks, one
        self._requests = 0

    def __call__(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        number = self._requests
        self._requests += 1
        request = json.dumps([[s.to_json() for s in schedules], [int(d) for d in documents]])
        self._ranks.ask(number, request)
        self._ranks.work(number, request, self._one)
        pairs = len(schedules) * len(documents)
        values = [self._ranks.value(number, pair) for pair in range(pairs)]
        found = np.array(values).reshape(len(schedules), len(documents), -1)
        return without_failures(found)

    def close(self) -> None:
        self._ranks.dismiss(self._requests)


def _read(request: str) -> tuple[list[RotarySchedule], list[int]]:
    value = parse_json(request, source="request")
    assert isinstance(value, list)
    schedules, documents = value
    return [RotarySchedule.from_json(schedule) for schedule in schedules], documents
