"""The varlen engine: all documents in one call of torch's variable-length attention. CUDA only.

The kernel lets the queries and the keys of a sequence differ in number and aligns the causal mask
to the last of both. So anchor attention needs no mask: a document's keys are [anchor] + document,
gathered by one index_select, and its queries stay where they are. What all documents say about the
anchor is added up in the backward of the gather.

Merging the anchor's part by log-sum-exp instead would avoid the gather, but the kernel's backward
silently discards the gradient of the log-sum-exp.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from ropewalk.attention import inputs
from ropewalk.attention.inputs import pack, unpack
from ropewalk.attention.layout import AttentionLayout, IntArray
from ropewalk.errors import Unsupported


def obstacle(device: torch.device, dtype: torch.dtype, layout: AttentionLayout) -> str | None:
    if device.type != "cuda":
        return f"varlen has kernels for cuda only, the tensors are on {device.type}"
    if dtype not in (torch.bfloat16, torch.float16):
        return f"varlen computes in bfloat16 or float16, the tensors are {dtype}"
    if layout.sliding_window is not None:
        # Its windows count keys, and the anchor is further away than it lies among them.
        return "varlen has no sliding windows"
    return None


def attend(
    query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, *, scale: float
) -> Tensor:
    inputs.check(query, key, value, layout, obstacle)
    batch, heads, _, head_dim = query.shape
    if head_dim > 256 or head_dim % 8:
        raise Unsupported(
            f"varlen takes head sizes up to 256 in steps of 8, not {head_dim}; use per_document or "
            "flex"
        )
    index = _sequences(layout, batch, query.device)
    # The kernel wants them as [all tokens, heads, head_dim].
    packed = [pack(tensor, layout).transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)]
    keys, values = (_gather(tensor, index) for tensor in packed[1:])
    output = causal(packed[0], keys, values, index.borders, scale)
    return unpack(output.view(batch, -1, heads, head_dim).transpose(1, 2), layout)


class Borders(NamedTuple):
    """Where the sequences of a call begin among its rows, and how long the longest is."""

    queries: Tensor
    keys: Tensor
    longest_query: int
    longest_key: int


class _Sequences(NamedTuple):
    """One sequence for the anchor and one a document, row after row of the batch."""

    keys: Tensor
    """The packed token of every gathered key."""
    inverse: Tensor
    """The reverse: the place of every packed token in its own sequence's keys."""
    anchors: Tensor
    """The packed tokens that are anchors."""
    copies: Tensor
    """[batch, sequence, anchor]: the places of their copies among the keys."""
    borders: Borders


@lru_cache(maxsize=64)  # every layer of a model asks for the same few layouts
def _sequences(layout: AttentionLayout, batch: int, device: torch.device) -> _Sequences:
    anchor, documents = layout.anchor_length, layout.document_lengths
    # The anchor's own sequence, if there is an anchor, is nothing but anchor.
    first = [anchor] if anchor else []
    query_lengths = np.array([*first, *documents], dtype=np.int64)
    key_lengths = np.array([*first, *(anchor + documents)], dtype=np.int64)
    query_starts = np.cumsum(query_lengths) - query_lengths
    key_starts = np.cumsum(key_lengths) - key_lengths
    within = np.arange(key_lengths.sum()) - np.repeat(key_starts, key_lengths)
    in_document = within - anchor + np.repeat(query_starts, key_lengths)
    keys = np.where(within < anchor, within, in_document)
    copies = np.flatnonzero(within < anchor)
    inverse = np.concatenate([np.arange(anchor), np.flatnonzero(within >= anchor)])

    def batched(indices: IntArray, stride: int) -> Tensor:
        rows = np.arange(batch)[:, np.newaxis] * stride
        return torch.tensor((rows + indices).reshape(-1), device=device)

    def borders(lengths: IntArray) -> Tensor:
        sums = np.cumsum(np.tile(lengths, batch))
        return torch.tensor([0, *sums.tolist()], dtype=torch.int32, device=device)

    return _Sequences(
        keys=batched(keys, inverse.size),
        inverse=batched(inverse, keys.size),
        anchors=batched(np.arange(anchor), inverse.size),
        copies=batched(copies, keys.size).view(batch, query_lengths.size, anchor),
        borders=Borders(
            borders(query_lengths),
            borders(key_lengths),
            int(query_lengths.max()),
            int(key_lengths.max()),
        ),
    )


def _gather(rows: Tensor, index: _Sequences) -> Tensor:
    gathered: Tensor = _Gather.apply(rows, index)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    """[tokens, heads, dim] -> [keys, heads, dim].

    index_select's own backward adds up in the type of the gradient, in no fixed order. Thousands of
    documents add to one anchor, so here the sum is in float32, and the same every time.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: _Sequences) -> Tensor:
        ctx.index = index
        return rows.index_select(0, index.keys)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        index: _Sequences = ctx.index
        result = gradient.index_select(0, index.inverse)
        exact = torch.promote_types(gradient.dtype, torch.float32)
        total = gradient[index.copies].sum(dim=1, dtype=exact).flatten(0, 1)
        return result.index_copy_(0, index.anchors, total.to(gradient.dtype)), None


def shares_heads() -> bool:
    """True if torch's kernel lets query heads share a key head; that of torch 2.11 does not."""
    return "enable_gqa" in inspect.signature(varlen_attn).parameters


def causal(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    borders: Borders,
    scale: float,
    near: int | None = None,
) -> Tensor:
    """Attend causally, aligned to the last query and the last key of each sequence; rows are
    [tokens, heads, head_dim], and a query sees the `near` last keys alone, if that is given."""
    options: dict[str, Any] = {}
    if query.shape[1] != key.shape[1]:
        if shares_heads():
            options["enable_gqa"] = True
        else:
            group = query.shape[1] // key.shape[1]
            key, value = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))
    window = (-1 if near is None else near - 1, 0)
    output = varlen_attn(query, key, value, *borders, scale=scale, window_size=window, **options)
    assert isinstance(output, Tensor)  # a tuple only for those who ask for auxiliary outputs
    return output
