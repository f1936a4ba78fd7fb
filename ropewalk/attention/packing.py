"""A window read document by document, and back.

With the anchor first, documents in one piece and padding left out, every layout looks alike: so an
engine only needs the documents' lengths, and interleaved chunks cost it two copies, not a mask.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ropewalk.attention.layout import AttentionLayout


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
