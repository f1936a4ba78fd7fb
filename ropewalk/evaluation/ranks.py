"""Measuring over the ranks of `torchrun`, every rank with a copy of the model.

Rank 0 searches, the others serve it. A request is many pairs of a schedule and a document; whoever
is free takes the next pair from a counter in the store that the ranks meet in, so nobody waits
longer than one pair takes. Each pair is one forward of its own, and its values travel as the digits
that give the same floats back: the answer is the same whatever the number of ranks. No collective
is involved, so a slow rank holds nobody up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

import numpy as np
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from ropewalk.evaluation.objectives import without_failures
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.untrusted import parse_json

One = Callable[[RotarySchedule, int], FloatArray]
"""The measurement of a schedule on a document."""

_END = "end"


class Ranks:
    """The store that all ranks share, and this one's place among them."""

    def __init__(self, store: Any, rank: int, size: int, prefix: str = "ropewalk") -> None:
        self._store, self.rank, self.size = store, rank, size
        self._prefix = prefix

    @classmethod
    def of_environment(cls) -> Ranks:
        """As `torchrun` set them up."""
        return cls(*next(iter(rendezvous("env://"))))

    def apart(self, name: str) -> Ranks:
        """The same ranks with keys of their own: for one series of requests."""
        return Ranks(self._store, self.rank, self.size, f"{self._prefix}/{name}")

    def measure(self, one: One) -> SharedMeasure:
        """For rank 0: a measure that all ranks work on."""
        return SharedMeasure(self, one)

    def serve(self, one: One) -> None:
        """For the others: measure what rank 0 asks for, until it needs no more."""
        for number in count():
            request = self._awaited(f"request/{number}")
            if request == _END:
                break
            self.work(number, request, one)
        if self._count("gone") == self.size - 2:
            self._put("all gone", "")

    def dismiss(self, number: int) -> None:
        """For rank 0, after its last request; it may hold the store, so it leaves last."""
        self._put(f"request/{number}", _END)
        if self.size > 1:
            self._awaited("all gone")

    def ask(self, number: int, request: str) -> None:
        """For rank 0: let the others begin."""
        self._put(f"request/{number}", request)

    def work(self, number: int, request: str, one: One) -> None:
        """Take pairs of a request until there are none left."""
        schedules, documents = _read(request)
        while (pair := self._count(f"next/{number}")) < len(schedules) * len(documents):
            schedule, document = divmod(pair, len(documents))
            values = one(schedules[schedule], documents[document])
            # NaN is no JSON, and repr gives every float back.
            self._put(f"value/{number}/{pair}", " ".join(map(repr, values.tolist())))

    def value(self, number: int, pair: int) -> list[float]:
        text: str = self._awaited(f"value/{number}/{pair}")
        return [float(value) for value in text.split()]

    def _put(self, key: str, value: str) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def _count(self, key: str) -> int:
        """How often this was called for the key, on any rank, before."""
        return int(self._store.add(f"{self._prefix}/{key}", 1)) - 1

    def _awaited(self, key: str) -> str:
        key = f"{self._prefix}/{key}"
        while True:
            try:
                self._store.wait([key], timedelta(minutes=5))
            except dist.DistStoreError:  # not yet there: a forward may take longer than that
                continue
            text: str = self._store.get(key).decode()
            return text


class SharedMeasure:
    """A measure whose pairs all ranks take from one counter."""

    def __init__(self, ranks: Ranks, one: One) -> None:
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
        return without_failures(np.array(values).reshape(len(schedules), len(documents), -1))

    def close(self) -> None:
        self._ranks.dismiss(self._requests)


def _read(request: str) -> tuple[list[RotarySchedule], list[int]]:
    value = parse_json(request, source="request")
    assert isinstance(value, list)
    schedules, documents = value
    return [RotarySchedule.from_json(schedule) for schedule in schedules], documents
