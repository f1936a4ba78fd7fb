"""The tensors of every engine: checked, and read document by document and back.

With the anchor first, documents in one piece and padding left out, every layout looks alike: so an
engine only needs the documents' lengths, and interleaved chunks cost it two copies, not a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from ropewalk.attention.layout import AttentionLayout
from ropewalk.errors import InvalidValue, Unsupported

Obstacle = Callable[[torch.device, torch.dtype, AttentionLayout], str | None]
"""Why an engine cannot run somewhere, in words; None if it can."""


def check(
    query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, obstacle: Obstacle
) -> None:
    """Refuse what is not [batch, heads, length, head_dim] of one window, or what cannot run."""
    # Each tensor alone, and next to the query.
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.ndim != 4:
            raise InvalidValue(
                f"{name}.shape",
                tuple(tensor.shape),
                "must be [batch, heads, length, head_dim]",
                "give four dimensions",
            )
        if tensor.shape[2] != layout.length:
            raise InvalidValue(
                f"{name}.shape[2]",
                tensor.shape[2],
                f"the layout has {layout.length} tokens",
                "give the layout of this window, with padded_to if the window is longer",
            )
        for kind in ("device", "dtype"):
            if getattr(tensor, kind) != getattr(query, kind):
                raise InvalidValue(
                    f"{name}.{kind}",
                    getattr(tensor, kind),
                    f"query.{kind} is {getattr(query, kind)}",
                    f"bring them to one {kind}",
                )
    # All three together: heads may be fewer in key and value, which groups of queries share.
    if query.shape[::3] != key.shape[::3] or key.shape != value.shape:
        raise InvalidValue(
            "key.shape, value.shape",
            (tuple(key.shape), tuple(value.shape)),
            f"query.shape is {tuple(query.shape)}",
            "give all three the same batch and head_dim, and key and value the same heads",
        )
    if key.shape[1] == 0 or query.shape[1] % key.shape[1]:
        raise InvalidValue(
            "query.shape[1]",
            query.shape[1],
            f"must be a multiple of the {key.shape[1]} key heads",
            "give each key head the same number of query heads",
        )
    if reason := obstacle(query.device, query.dtype, layout):
        raise Unsupported(f"{reason}; attention.choose(device, dtype, layout) finds an engine")


def pack(tensor: Tensor, layout: AttentionLayout) -> Tensor:
    """[batch, heads, length, head_dim] in the order of `layout.order`."""
    if layout.is_packed:
        return tensor
    return tensor.index_select(2, _order(layout, tensor.device))


def unpack(tensor: Tensor, layout: AttentionLayout) -> Tensor:
    """The reverse of `pack`; the output at padding is 0."""
    if layout.is_packed:
        return tensor
    batch, heads, _, head_dim = tensor.shape
    window = tensor.new_zeros(batch, heads, layout.length, head_dim)
    return window.index_copy(2, _order(layout, tensor.device), tensor)


@lru_cache(maxsize=64)  # every layer of a model asks for the same few layouts
def _order(layout: AttentionLayout, device: torch.device) -> Tensor:
    return torch.tensor(layout.order, device=device)
