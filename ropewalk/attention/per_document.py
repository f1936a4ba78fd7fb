"""The per-document engine: one causal SDPA call for each document. Runs on any device.

A document's queries see [anchor] + document. Kernels that fuse the causal mask do so only for a
square, so the anchor's queries are computed along with every document and dropped: a few wasted
rows instead of a mask of length². The anchor by itself is one more call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ropewalk.attention import inputs
from ropewalk.attention.layout import AttentionLayout
from ropewalk.attention.packing import pack, unpack


def obstacle(device: torch.device, dtype: torch.dtype, layout: AttentionLayout) -> str | None:
    if dtype == torch.float64 and device.type != "cpu":
        return f"per_document on {device.type} has no kernel for {dtype} without a dense mask"
    return None


def attend(
    query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, *, scale: float
) -> Tensor:
    inputs.check(query, key, value, layout, obstacle)
    length = layout.anchor_length
    sizes = [length, *layout.document_lengths.tolist()]
    # split, not slices: its backward is one concatenation, that of a slice fills the whole window.
    anchors, *documents = zip(
        *(torch.split(pack(tensor, layout), sizes, dim=2) for tensor in (query, key, value)),
        strict=True,
    )
    if not length:
        outputs = [_causal(document, scale) for document in documents]
    else:
        outputs = [_causal(anchors, scale)]
        # Every document adds to the anchor's gradient: thousands of terms, too many for bfloat16.
        anchors = tuple(anchor.to(_at_least_float32(anchor.dtype)) for anchor in anchors)
        for document in documents:
            pairs = zip(anchors, document, strict=True)
            both = [torch.cat(_alike(anchor, part), dim=2) for anchor, part in pairs]
            outputs.append(_causal(both, scale)[:, :, length:].to(query.dtype))
    return unpack(torch.cat(outputs, dim=2), layout)


def _causal(tensors: Sequence[Tensor], scale: float) -> Tensor:
    query, key, value = tensors
    return scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )


def _alike(anchor: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    """In the type that the kernel computes in. A cpu has float32 units, and rounds less so."""
    dtype = anchor.dtype if part.device.type == "cpu" else part.dtype
    return anchor.to(dtype), part.to(dtype)


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
