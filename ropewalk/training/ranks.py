"""What ranks must agree on: whether all succeeded, and whether they hold the same weights.

An error on one rank is raised on all of them. Otherwise the others would wait in the next
collective call for one that has left.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ropewalk.errors import InputError, RopewalkError

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


def any_rank(here: bool, device: torch.device) -> bool:
    """Whether it is so on any rank."""
    if not dist.is_initialized():
        return here
    told = torch.tensor(int(here), device=device)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told.item())


def weights_digest(named: Iterable[tuple[str, Tensor]]) -> str:
    """Of the bits of tensors; the same however they are cut over ranks, which all take part."""
    sums = [(name, list(own.shape), str(own.dtype), _bit_sum(own)) for name, own in named]
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest()


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bit_sum(tensor: Tensor) -> int:
    """Modulo 2⁶⁴, so the order of adding up does not count."""
    whole = tensor.detach()
    whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
    bits = whole.contiguous().view(-1).view(_INTEGERS[whole.element_size()])
    return int(bits.sum(dtype=torch.int64).item())
