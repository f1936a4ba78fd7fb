"""Measuring over the ranks of `torchrun`, every rank or group of ranks with a copy of the model.

Rank 0 searches, the others serve it. A request is many pairs of a schedule and a document; whoever
is free takes the next pair from a counter in the store that the ranks meet in, so nobody waits
longer than one pair takes. Each pair is one forward of its own, and its values travel as the digits
that give the same floats back: the answer is the same whatever the number of ranks.

Ranks that share a copy (sharding.py) call it in step. The first of them draws as many pairs as they
are and tells the others, and each computes its own. Between groups no collective is involved, so a
slow one holds nobody up. Who fails says so in the store, and whoever waits there ends too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.models.sharding import shard
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.model.objectives import without_failures
from ropewalk.untrusted import parse_json

One = Callable[[RotarySchedule, int], FloatArray]
"""The measurement of a schedule on a document."""

_END = "end"
_FAILED = "ropewalk/failed"
_LOOK = timedelta(seconds=5)
"""How long to wait before looking whether somebody failed."""


class Ranks:
    """The store that all ranks share, and this one's place among them.

    As a context, it tells the others when this rank fails, and names the one that failed first.
    """

    def __init__(
        self, store: Any, rank: int, size: int, per_copy: int = 1, prefix: str = "ropewalk"
    ) -> None:
        self._store, self.rank, self.size = store, rank, size
        self.per_copy = per_copy
        self._copy, self._place = divmod(rank, per_copy)
        self._prefix = prefix

    @classmethod
    def of_environment(cls, per_copy: int = 1) -> Ranks:
        """As `torchrun` set them up, so many of them to a copy of the model."""
        store, rank, size = next(iter(rendezvous("env://")))
        return cls(store, rank, size, per_copy)

    def apart(self, name: str) -> Ranks:
        """The same ranks with keys of their own: for one series of requests."""
        prefix = f"{self._prefix}/{name}"
        return Ranks(self._store, self.rank, self.size, self.per_copy, prefix)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            if self.per_copy > 1:
                dist.destroy_process_group()
        elif self._failed() is None:
            self._store.set(_FAILED, str(self.rank))
        elif isinstance(error, RuntimeError):  # a collective breaks where a rank is gone
            self._end_with_the_failed()

    def place(self, model: Any, device: torch.device) -> None:
        """Put a model on the device: a whole one, or this rank's part of its group's."""
        if self.per_copy == 1:
            model.to(device)
            return
        if device.type not in ("cpu", "cuda"):
            raise Unsupported(
                f"ranks cannot share a copy of the model on {device.type}; they can on cpu and cuda"
            )
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            store=PrefixStore("copies", self._store), rank=self.rank, world_size=self.size
        )
        copies = (self.size // self.per_copy, self.per_copy)
        mesh = init_device_mesh(device.type, copies, mesh_dim_names=("copy", "share"))
        shard(model, device, mesh["share"])

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
        if self._add("gone", 1) == self.size - 1:
            self._put("all gone", "")

    def dismiss(self, number: int) -> None:
        """For rank 0, after its last request; it may hold the store, so it leaves last."""
        self._put(f"request/{number}", _END)
        if self.size > 1:
            self._awaited("all gone")

    def share(self, text: str | None) -> str:
        """The text of rank 0, on every rank. Rank 0 may hold the store, so it leaves last."""
        if self.rank == 0:
            assert text is not None, "rank 0 has what it shares"
            self._put("shared", text)
            if self.size > 1:
                self._awaited("all have read")
            return text
        text = self._awaited("shared")
        if self._add("have read", 1) == self.size - 1:
            self._put("all have read", "")
        return text

    def ask(self, number: int, request: str) -> None:
        """For rank 0: let the others begin."""
        self._put(f"request/{number}", request)

    def work(self, number: int, request: str, one: One) -> None:
        """Take pairs of a request until there are none left."""
        schedules, documents = _read(request)
        pairs = len(schedules) * len(documents)
        for turn in count():
            first = self._drawn(number, turn)
            if first >= pairs:
                break
            # Where pairs run out, the rest of the group computes the last one too: in step.
            pair = min(first + self._place, pairs - 1)
            schedule, document = divmod(pair, len(documents))
            values = one(schedules[schedule], documents[document])
            # NaN is no JSON, and repr gives every float back.
            self._put(f"value/{number}/{pair}", " ".join(map(repr, values.tolist())))

    def value(self, number: int, pair: int) -> list[float]:
        text: str = self._awaited(f"value/{number}/{pair}")
        return [float(value) for value in text.split()]

    def _drawn(self, number: int, turn: int) -> int:
        """The first of the pairs that the group takes in a turn of a request."""
        told = f"turn/{number}/{self._copy}/{turn}"
        if self._place > 0:
            return int(self._awaited(told))
        first = self._add(f"next/{number}", self.per_copy) - self.per_copy
        if self.per_copy > 1:
            self._put(told, str(first))
        return first

    def _put(self, key: str, value: str) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def _add(self, key: str, amount: int) -> int:
        """The sum of what all ranks have added."""
        return int(self._store.add(f"{self._prefix}/{key}", amount))

    def _awaited(self, key: str) -> str:
        key = f"{self._prefix}/{key}"
        while True:
            try:
                self._store.wait([key], _LOOK)
                text: str = self._store.get(key).decode()
                return text
            except (dist.DistStoreError, dist.DistNetworkError):
                # Not yet there, for a forward may take longer than that; or never.
                self._end_with_the_failed()

    def _end_with_the_failed(self) -> None:
        failed = self._failed()
        if failed is not None:
            raise RopewalkError(f"rank {failed} failed; see its output") from None

    def _failed(self) -> str | None:
        """The rank that failed first, if any did."""
        try:
            return self._store.get(_FAILED).decode() if self._store.check([_FAILED]) else None
        except dist.DistNetworkError:  # the store is gone, and who held it
            return "0"


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
        found = np.array(values).reshape(len(schedules), len(documents), -1)
        return without_failures(found)

    def close(self) -> None:
        self._ranks.dismiss(self._requests)


def _read(request: str) -> tuple[list[RotarySchedule], list[int]]:
    value = parse_json(request, source="request")
    assert isinstance(value, list)
    schedules, documents = value
    return [RotarySchedule.from_json(schedule) for schedule in schedules], documents
