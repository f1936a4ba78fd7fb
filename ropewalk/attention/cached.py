"""Causal attention of queries that follow a cache, without a mask. CUDA in half precision only.

The last query belongs to the last key, so a causal mask would be aligned at the lower right. Two
kernels of torch know this alignment: that of variable lengths, which also knows sliding windows,
and SDPA under `causal_lower_right`, which lets query heads share key heads in every torch that we
support. Neither reads a mask, whose entries are what limits the size of a chunk otherwise.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad, scaled_dot_product_attention

from ropewalk.attention import varlen


def obstacle(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """Why the kernels cannot run, in words; None if they can."""
    if device.type != "cuda":
        return f"its kernels run on cuda only, the tensors are on {device.type}"
    if dtype not in (torch.bfloat16, torch.float16):
        return f"it computes in bfloat16 or float16, the tensors are {dtype}"
    if head_dim > 256 or head_dim % 8:
        return f"it takes head sizes up to 256 in steps of 8, not {head_dim}"
    return None


def attend(
    query_BHLD: Tensor, key: Tensor, value: Tensor, *, scale: float, near: int | None = None
) -> Tensor:
    """[batch, heads, length, head_dim] in and out; a query sees the `near` last keys, or all."""
    width = value.shape[-1]
    value = pad(value, (0, query_BHLD.shape[-1] - width))  # values may be narrower than keys
    near = None if near is None or near >= key.shape[2] else near
    grouped = query_BHLD.shape[1] != key.shape[1]
    kernel = _lower_right if grouped and not varlen.shares_heads() else _varlen
    return kernel(query_BHLD, key, value, scale, near)[..., :width]


def _varlen(query: Tensor, key: Tensor, value: Tensor, scale: float, near: int | None) -> Tensor:
    batch, heads, length, width = query.shape
    rows = [tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)]
    numbers = torch.arange(batch + 1, dtype=torch.int32, device=query.device)
    keys = key.shape[2]
    borders = varlen.Borders(numbers * length, numbers * keys, length, keys)
    output = varlen.causal(rows[0], rows[1], rows[2], borders, scale, near)
    return output.view(batch, length, heads, width).transpose(1, 2)


def _lower_right(
    query: Tensor, key: Tensor, value: Tensor, scale: float, near: int | None
) -> Tensor:
    mask: Tensor = causal_lower_right(query.shape[2], key.shape[2])
    if near is not None:  # a sliding layer's cache holds few keys, so this mask is small
        ones = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
        last = key.shape[2] - query.shape[2]
        mask = ones.tril(last) & ones.triu(last - near + 1)
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )
