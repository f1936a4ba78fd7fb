"""Agreement of ranks: whether all succeeded, what they see, and which weights they hold.

An error on one rank is raised on all of them. Otherwise the others would wait in the next
collective call for one that has left.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ropewalk.errors import InputError, RopewalkError
from ropewalk.outputs import sha256_of

T = TypeVar("T")


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def gathered(value: T) -> list[T]:
    """The value of each rank."""
    if not dist.is_initialized():
        return [value]
    values: list[T] = [value] * ranks()
    dist.all_gather_object(values, value)
    return values


def on_all(act: Callable[[], T]) -> list[T]:
    """Act on every rank, and return what each got. If one fails, all do."""
    result: list[T] = []
    failure: Exception | None = None
    try:
        result.append(act())
    except Exception as error:
        failure = error
    said = gathered(None if failure is None else (str(failure), isinstance(failure, InputError)))
    if failure is not None:
        raise failure
    for other, text in enumerate(said):
        if text is not None:
            kind = InputError if text[1] else RopewalkError
            raise kind(f"rank {other}: {text[0]}")
    return gathered(result[0])


def on_first(act: Callable[[], object]) -> None:
    """Act on the first rank, while the others wait. If it fails, all do."""

    def first() -> None:
        if rank() == 0:
            act()

    on_all(first)


def most_of_ranks(number: int, device: torch.device) -> int:
    """The largest number of any rank."""
    if not dist.is_initialized():
        return number
    most = torch.tensor(number, device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return int(most.item())


def check_shared(folder: Path) -> None:
    """Refuse ranks of which some do not see the folder that the first writes to."""
    mark = folder / f".seen-{gathered(uuid4().hex)[0]}"

    def see() -> None:
        if not mark.is_file():
            raise InputError(
                f"{folder}: the first rank writes here, and this one does not see it; machines "
                "that train together need a common file system: give all of them the same run "
                "directory on it"
            )

    on_first(mark.touch)
    try:
        on_all(see)
    finally:
        on_first(mark.unlink)


def check_seen(values: Mapping[str, object], files: Mapping[str, Path]) -> None:
    """Refuse ranks that see different values or files: each would train a piece of another model.

    A file that is one and the same for all, on one machine, is not read; else once on each.
    """
    stamps = gathered({name: _place_of(path) for name, path in files.items()})
    ours: dict[str, object] = {key: json.dumps(value, default=str) for key, value in values.items()}
    for number, (name, path) in enumerate(files.items()):
        stamp = stamps[rank()][name]
        same = [other for other, seen in enumerate(stamps) if seen.get(name) == stamp]
        if len(same) == ranks():
            ours[name] = "the same for all"
        elif same[number % len(same)] == rank():
            ours[name] = sha256_of(path)
    views = gathered(ours)
    for other, seen in enumerate(stamps):
        for name, place in seen.items():  # who did not read it has it from who did
            first = next(r for r, each in enumerate(stamps)
                         if each.get(name) == place and name in views[r])  # fmt: skip
            views[other].setdefault(name, views[first][name])
    for other, theirs in enumerate(views):
        names = {*theirs, *views[0]}
        if differ := sorted(key for key in names if theirs.get(key) != views[0].get(key)):
            raise InputError(
                f"rank {other} differs from the first rank in "
                f"{', '.join(differ[:3])}{', …' if len(differ) > 3 else ''}; give all ranks the "
                "same files, settings and packages"
            )


def _place_of(path: Path) -> list[object]:
    """The place and time of a file; the same for all who have the same file on one machine."""
    stat = path.stat()
    return [platform.node(), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns]


def whole(tensor: Tensor) -> Tensor:
    """The values of a tensor, gathered if it is cut over ranks, which then all take part."""
    value = tensor.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value


def weights_digest(named: Iterable[tuple[str, Tensor]]) -> str:
    """A digest of the bits of tensors, however they are cut over ranks, which all take part."""
    sums = [(name, list(value.shape), str(value.dtype), _bit_sum(value)) for name, value in named]
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest()


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bit_sum(tensor: Tensor) -> int:
    """Modulo 2⁶⁴, so the order of adding up does not count."""
    value = whole(tensor)
    bits = value.contiguous().view(-1).view(_INTEGERS[value.element_size()])
    return int(bits.sum(dtype=torch.int64).item())
