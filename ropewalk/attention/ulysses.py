"""Sequence parallelism by all-to-all, around any engine and any layout.

Outside attention, every rank holds a stretch of the sequence with all heads. Inside, it holds the
whole sequence with a share of the heads: one all-to-all in, one out.

    [batch, heads, length/ranks, dim]  <->  [batch, heads/ranks, length, dim]

The engine therefore sees whole documents, wherever the borders between ranks fall, and computes
for each head what one process would: the same numbers to the last bit. Nothing is merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.functional import pad

from ropewalk.errors import Unsupported


def shard_length(length: int, ranks: int) -> int:
    """The number of tokens every rank holds; the last ranks' may be padding."""
    return -(-length // ranks)


def shard(tensor: Tensor, mesh: DeviceMesh, *, fill: float, dim: int = 1) -> Tensor:
    """Return this rank's stretch of a tensor that all ranks hold whole, padded to equal stretches.

    Fill tokens and positions with 0, and labels with -100. Labels are shifted before, not after:
    a stretch's last label is the next stretch's first token.
    """
    return stretch(tensor, mesh.size(), mesh.get_local_rank(), fill=fill, dim=dim)


def stretch(tensor: Tensor, ranks: int, rank: int, *, fill: float, dim: int = 1) -> Tensor:
    """The same for a rank that is named by its number."""
    length = shard_length(tensor.shape[dim], ranks)
    missing = length * ranks - tensor.shape[dim]
    behind = [0, 0] * (tensor.ndim - 1 - dim % tensor.ndim) + [0, missing]
    filled = pad(tensor, behind, value=fill)
    return filled.narrow(dim, rank * length, length).contiguous()


def attend(
    engine: Callable[[Tensor, Tensor, Tensor], Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mesh: DeviceMesh,
) -> Tensor:
    """`engine(query, key, value)` over the whole sequence, from and to this rank's stretch."""
    if query.shape[1] % mesh.size():
        raise Unsupported(
            f"{query.shape[1]} attention heads cannot be shared by {mesh.size()} "
            "sequence-parallel ranks; use a number of ranks that divides the heads"
        )
    copies = _copies(query.shape[1], key.shape[1], mesh.size())
    key, value = (tensor.repeat_interleave(copies, dim=1) for tensor in (key, value))
    whole = (_exchange(tensor, mesh, gather=True) for tensor in (query, key, value))
    return _exchange(engine(*whole), mesh, gather=False)


def _copies(heads: int, key_heads: int, ranks: int) -> int:
    """The number of copies of a key head that gives every rank those its queries ask for.

    1 unless there are more ranks than key heads, or the ranks do not divide them. The gradients of
    copies add up by themselves, in the backward of the copying.
    """
    group = heads // key_heads
    return next(n for n in range(1, group + 1) if group % n == 0 and key_heads * n % ranks == 0)


def _exchange(tensor: Tensor, mesh: DeviceMesh, *, gather: bool) -> Tensor:
    """Give heads and get sequence (`gather`), or the reverse."""
    result: Tensor = _Exchange.apply(  # type: ignore[no-untyped-call]
        tensor, mesh.get_group(), mesh.size(), gather
    )
    return result


class _Exchange(torch.autograd.Function):
    """The all-to-all; each direction is the other's backward."""

    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, group: dist.ProcessGroup, ranks: int, gather: bool
    ) -> Tensor:
        ctx.arguments = group, ranks, gather
        return _all_to_all(tensor, group, ranks, gather)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        group, ranks, gather = ctx.arguments
        return _all_to_all(gradient, group, ranks, not gather), None, None, None


def _all_to_all(tensor: Tensor, group: dist.ProcessGroup, ranks: int, gather: bool) -> Tensor:
    split, joined = (1, 2) if gather else (2, 1)
    # The collective sends raw memory; stacking lays it out part by part, whatever the strides were.
    parts = torch.stack(tensor.chunk(ranks, dim=split))
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts, group=group)
    return torch.cat(received.unbind(), dim=joined)
