"""The ranks of `torchrun`: the store that they meet in, and groups that share a copy of a model.

Between copies no collective is involved, so a slow one holds nobody up: what they exchange goes
through the store. The ranks of one copy have a process group of their own. Who fails says so in the
store, and whoever waits there ends too; the one that failed leaves after them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import count
from time import monotonic, sleep
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from ropewalk.errors import RopewalkError, Unsupported

_STAYS, _STAYS_MET = 30.0, 10.0
"""Seconds for which the rank that failed waits for the others; the second with a process group."""
_FAILED, _ENDING, _ALL_END = "ropewalk/failed", "ropewalk/ending", "ropewalk/all end"

_CALLS = count()


@cache
def _met() -> tuple[Any, int, int]:
    """The store of this process's ranks, its rank, and how many they are."""
    store, rank, size = next(iter(rendezvous("env://")))
    return store, rank, size


class Ranks:
    """The store that all ranks share, and this one's place among them.

    As a context, it tells the others when this rank fails, and names the one that failed first.
    """

    def __init__(
        self, store: Any, rank: int, size: int, per_copy: int = 1, prefix: str = "ropewalk"
    ) -> None:
        self._store, self.rank, self.size = store, rank, size
        self.per_copy, self.copies = per_copy, size // per_copy
        self.copy, self.member = divmod(rank, per_copy)
        self._prefix = prefix

    @classmethod
    def of_environment(cls, per_copy: int = 1) -> Self:
        """The ranks as `torchrun` set them up, so many of them to a copy of the model.

        Each call has keys of its own in their store; all ranks make the same calls.
        """
        store, rank, size = _met()
        return cls(store, rank, size, per_copy, f"ropewalk/{next(_CALLS)}")

    def apart(self, name: str) -> Self:
        """The same ranks with keys of their own: for one series of requests."""
        prefix = f"{self._prefix}/{name}"
        return type(self)(self._store, self.rank, self.size, self.per_copy, prefix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            if self.per_copy > 1:
                dist.destroy_process_group()
        elif self._ends_first(isinstance(error, Exception)):
            return
        elif isinstance(error, RuntimeError):  # a collective breaks where a rank is gone
            self._end_with_the_failed()

    def _ends_first(self, waits: bool) -> bool:
        """Tell the others that this rank ends; False if another has failed before.

        The one that failed first `waits` for them: torchrun ends all ranks once one has left, and
        those that had not read of it could not say why they end.
        """
        try:
            ended = self._store.add(_ENDING, 1)
            if ended == 1:
                self._store.set(_FAILED, str(self.rank))
            if ended == self.size:
                self._store.set(_ALL_END, "")
        except dist.DistNetworkError:
            return self._failed() == str(self.rank)
        # Others may still be importing, or wait in a collective, which breaks when this one leaves.
        until = monotonic() + (_STAYS_MET if dist.is_initialized() else _STAYS)
        try:
            while ended == 1 and waits and monotonic() < until:
                if self._store.check([_ALL_END]):
                    break
                sleep(0.05)
        except (dist.DistNetworkError, KeyboardInterrupt):  # what failed is told, not this
            pass
        return bool(ended == 1)

    def meet(self, device: torch.device) -> DeviceMesh:
        """Begin the process group of this copy's ranks."""
        if device.type not in ("cpu", "cuda"):
            raise Unsupported(
                f"ranks cannot share a copy of the model on {device.type}; they can on cpu and cuda"
            )
        if dist.is_initialized():
            raise Unsupported(
                "this process has a process group already, and ranks that share a copy of the "
                "model need one of their own; run the command under torchrun by itself"
            )
        if device.type == "cuda":
            torch.cuda.set_device(device)
        store = PrefixStore(f"{self._prefix}/copy {self.copy}", self._store)
        dist.init_process_group(store=store, rank=self.member, world_size=self.per_copy)
        return init_device_mesh(device.type, (self.per_copy,), mesh_dim_names=("share",))

    def share(self, text: str | None) -> str:
        """The text of rank 0, on every rank. Rank 0 may hold the store, so it leaves last."""
        if self.rank == 0:
            assert text is not None, "rank 0 has what it shares"
            self.put("shared", text)
            if self.size > 1:
                self.awaited("all have read")
            return text
        text = self.awaited("shared")
        if self.add("have read", 1) == self.size - 1:
            self.put("all have read", "")
        return text

    def told(self, name: str, value: object) -> Any:
        """The value of rank 0, on every rank, as JSON gives it back; each name serves once."""
        own = json.dumps(value) if self.rank == 0 else None
        return json.loads(self.apart(name).share(own))

    def check_same(self, configuration: Mapping[str, object]) -> None:
        """Refuse ranks that see other files or other settings."""
        own = json.loads(json.dumps(configuration))
        theirs = self.told("configuration", own)
        other = [key for key in {**own, **theirs} if own.get(key) != theirs.get(key)]
        if other:
            raise RopewalkError(
                f"rank {self.rank} sees another {', '.join(sorted(other))} than rank 0; give all "
                "ranks the same files and settings"
            )

    def put(self, key: str, value: str) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def add(self, key: str, amount: int) -> int:
        """The sum of what all ranks have added."""
        return int(self._store.add(f"{self._prefix}/{key}", amount))

    def awaited(self, key: str) -> str:
        key = f"{self._prefix}/{key}"
        pause = 0.001
        while True:  # the store's own wait warns each time that it ends, and this may take hours
            try:
                if self._store.check([key]):
                    return str(self._store.get(key).decode())
            except dist.DistNetworkError:
                pass  # the store is gone, and who held it
            self._end_with_the_failed()
            sleep(pause)
            pause = min(2 * pause, 0.05)

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
