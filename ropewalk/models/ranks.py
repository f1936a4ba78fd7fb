"""The ranks of `torchrun`: the store that they meet in, and groups that share a copy of a model.

Between copies no collective is involved, so a slow one holds nobody up: what they exchange goes
through the store. The ranks of one copy have a process group of their own. Who fails says so in the
store, and whoever waits there ends too; the one that failed leaves after them. One that was killed
or stopped says nothing: the others miss its beat, and name it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from functools import cache
from itertools import count
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.models.sharding import shard
from ropewalk.run_directory import versions
from ropewalk.torchrun import Ranks

_STAYS, _STAYS_MET = 30.0, 10.0
"""Seconds for which the rank that failed waits for the others; the second with a process group."""
_FAILED, _ENDING, _ALL_END = "ropewalk/failed", "ropewalk/ending", "ropewalk/all end"

SILENT = 45.0
"""Seconds without a beat after which a rank is given up: with 50, a busy machine took 61 to end."""
_GRACE = 5.0
"""Seconds in which a rank may notice by itself that another is lost, before it is ended: whoever
waits in a collective for one that was stopped waits for ever."""
_LEFT = "left"
_GONE, _STOPPED = ("Z", "X"), ("T", "t")
"""States of a process."""
_AGAIN = "run the same command again, which goes on from its `run`, if it has one"

_CALLS = count()


@cache
def _met() -> tuple[Any, int, int]:
    """The store of this process's ranks, its rank, and how many they are."""
    store, rank, size = next(iter(rendezvous("env://")))
    return store, rank, size


class Watch:
    """The beats of all ranks: each gives its own, and names one that gives none.

    One thread exchanges beats, and is held up if the rank that holds the store is stopped. Another
    one looks at the time.
    """

    def __init__(self, store: Any, rank: int, size: int, prefix: str, silent: float) -> None:
        # A connection of its own: a call that waits in another thread would hold it up.
        self._store = PrefixStore(f"{prefix}/beat", store.clone())
        self._rank, self._others = rank, [other for other in range(size) if other != rank]
        self._silent, self._every = silent, min(1.0, silent / 10)
        self._heard: dict[int, tuple[str, float]] = {}
        """The last new beat of each rank, and when it came."""
        self._exchanged = monotonic()
        self._ended: list[int] = []
        self._certain = True
        self._lost: str | None = None
        self._leaves, self._over = Event(), Event()
        self._exchanging = Thread(target=self._exchange, daemon=True)
        for thread in (self._exchanging, Thread(target=self._look, daemon=True)):
            thread.start()

    def leave(self) -> None:
        """Say that this rank leaves, so that nobody misses it."""
        self._leaves.set()
        self._exchanging.join(_GRACE)

    def end(self) -> None:
        self._over.set()

    def lost(self) -> str | None:
        """The rank that went without a word, if any did: the first, since others end for it."""
        self._lost = self._lost or self._missed()
        return self._lost

    def _missed(self) -> str | None:
        now = monotonic()
        for rank, (beat, came) in sorted(self._heard.items()):
            if beat == _LEFT:
                continue
            if rank in self._ended:
                return f"rank {rank} has ended without a word, as if it had been killed; {_AGAIN}"
            # While nobody can be heard, only who may hold the store is known to be silent; and who
            # runs here may be held up, as by an import on a busy machine.
            heard = rank == 0 or now - self._exchanged < self._silent
            if now - came > self._silent and heard and _state(beat) in ("", *_STOPPED):
                return (
                    f"rank {rank} has been silent for {now - came:.0f} s, as if it was stopped or "
                    f"cut off; {_AGAIN}"
                )
        return None

    def _exchange(self) -> None:
        process = f"{_place()} {os.getpid()}"
        leaves = False
        for number in count():
            # Who leaves says so before it ends: what is read afterwards tells who did not.
            beats = ((rank, beat) for rank, (beat, _) in self._heard.items() if beat != _LEFT)
            gone = [rank for rank, beat in beats if _state(beat) in _GONE]
            self._certain = False
            with suppress(RuntimeError):  # the store is gone, and who held it
                self._store.set(str(self._rank), _LEFT if leaves else f"{process} {number}")
                for rank in self._others:
                    if self._store.check([str(rank)]):
                        beat = self._store.get(str(rank)).decode()
                        if beat != self._heard.get(rank, ("", 0.0))[0]:
                            self._heard[rank] = beat, monotonic()
                self._exchanged, self._certain = monotonic(), True
            self._ended = gone
            if leaves:
                return
            leaves = self._leaves.wait(self._every)

    def _look(self) -> None:
        while not self._over.wait(self._every):
            # Without the store, who held it may have left as it should.
            if self._ended and not self._certain:
                continue
            if (lost := self.lost()) is not None and not self._over.wait(_GRACE):
                os.write(2, f"error: {lost}\n".encode())
                os._exit(RopewalkError.exit_status)


def _place() -> str:
    """This machine, or this container on it: where numbers of processes mean the same."""
    space = Path("/proc/self/ns/pid")
    return f"{platform.node()} {os.readlink(space)}" if space.exists() else ""


def _state(beat: str) -> str:
    """The state of a beat's process, if it is of this machine, as Linux alone tells; else empty."""
    place, pid, _ = beat.rsplit(" ", 2)
    if not place or place != _place():
        return ""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


class StoreRanks(Ranks):
    """Ranks that meet in a store, and this one's place among them.

    As a context, it tells the others when this rank fails, and names the one that failed first.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        per_copy: int = 1,
        prefix: str = "ropewalk",
        silent: float = SILENT,
    ) -> None:
        self._store, self.rank, self.size = store, rank, size
        self.per_copy, self.copies = per_copy, size // per_copy
        self.copy, self.member = divmod(rank, per_copy)
        self._prefix, self._silent = prefix, silent
        self._watch: Watch | None = None
        self._broadcasts = count()

    @classmethod
    def of_environment(cls, per_copy: int = 1, silent: float = SILENT) -> Self:
        """The ranks as `torchrun` set them up, so many of them to a copy of the model.

        Each call has keys of its own in their store; all ranks make the same calls.
        """
        store, rank, size = _met()
        return cls(store, rank, size, per_copy, f"ropewalk/{next(_CALLS)}", silent)

    def apart(self, name: str) -> Self:
        same = copy(self)
        same._prefix = f"{self._prefix}/{name}"
        return same

    def __enter__(self) -> Self:
        if self.size > 1:
            self._watch = Watch(self._store, self.rank, self.size, self._prefix, self._silent)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        ended = error
        try:
            self._leave(error)
        except KeyboardInterrupt as interrupt:
            ended = interrupt
            raise
        finally:
            if self._watch is not None:
                self._watch.leave()
                self._watch.end()
            # torchrun interrupts the others as soon as one is gone, before it is missed.
            if isinstance(ended, KeyboardInterrupt) and (lost := self._lost()) is not None:
                ended.add_note(lost)

    def _leave(self, error: BaseException | None) -> None:
        lost = None if error is None else self._lost_in(error)
        if self._watch is not None:
            self._watch.leave()
        if error is None:
            if self.per_copy > 1:
                dist.destroy_process_group()
        elif not self._ends_first(isinstance(error, Exception) and lost is None) and isinstance(
            error, RuntimeError
        ):  # a collective breaks where a rank is gone
            self._end_with_the_failed()
        if lost is not None and isinstance(error, RuntimeError):
            raise RopewalkError(lost) from error

    def _lost(self) -> str | None:
        return None if self._watch is None else self._watch.lost()

    def _lost_in(self, error: BaseException) -> str | None:
        """The rank that was lost when this error came up: a connection may break first."""
        broken = isinstance(error, dist.DistError) or "gloo" in str(error)
        until = monotonic() + (self._silent + _GRACE if broken else 1.0)
        while isinstance(error, RuntimeError) and monotonic() < until:
            if self._lost() or self._failed():
                break
            sleep(0.05)
        return self._lost()

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

    def place(self, model: Any, device: torch.device) -> None:
        shard(model, device, self.meet(device))

    def broadcast(self, value: Any) -> Any:
        series = self.apart(f"broadcast/{next(self._broadcasts)}")
        if self.rank == 0:
            series.put("value", json.dumps(value))
            if self.size > 1:  # rank 0 may hold the store, so it leaves last
                series.awaited("all have read")
            return value
        text = series.awaited("value")
        if series.add("have read", 1) == self.size - 1:
            series.put("all have read", "")
        return json.loads(text)

    def send(self, key: str, value: object) -> None:
        if self.member == 0:
            self.put(key, json.dumps(value))

    def received(self, key: str) -> Any:
        return json.loads(self.awaited(key))

    def check_same(self, configuration: Mapping[str, object]) -> None:
        installed = {f"version of {name}": version for name, version in versions().items()}
        ours = json.loads(json.dumps({**configuration, **installed}))
        theirs = self.broadcast(ours)
        other = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        if other:
            raise RopewalkError(
                f"rank {self.rank} sees another {', '.join(sorted(other))} than rank 0; give all "
                "ranks the same files, settings and packages"
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
        failed, lost = self._failed(), self._lost()
        if failed is not None:
            raise RopewalkError(lost or f"rank {failed} failed; see its output") from None
        if lost is not None:
            raise RopewalkError(lost)

    def _failed(self) -> str | None:
        """The rank that failed first, if any did."""
        try:
            return self._store.get(_FAILED).decode() if self._store.check([_FAILED]) else None
        except dist.DistNetworkError:  # the store is gone, and who held it
            return "0"
