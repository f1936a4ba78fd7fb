"""The per-document engine: one causal SDPA call for each document. Runs on any device.

A document's queries see [anchor] + document. Kernels that fuse the causal mask do so only for a
square, so the anchor's queries are computed along with every document and dropped: a few wasted
rows instead of a mask of length². The anchor by itself is one more call. Under a sliding window, a
document is read in blocks of queries, each with the keys that it sees and a mask of that size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ropewalk.attention import inputs
from ropewalk.attention.inputs import pack, unpack
from ropewalk.attention.layout import AttentionLayout, IntArray, first_seen

BLOCK = 256
"""The fewest tokens of a block under a sliding window."""


def obstacle(device: torch.device, dtype: torch.dtype, layout: AttentionLayout) -> str | None:
    if dtype == torch.float64 and device.type != "cpu":
        return f"per_document on {device.type} has no kernel for {dtype} without a dense mask"
    return None


def attend(
    query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, *, scale: float
) -> Tensor:
    inputs.check(query, key, value, layout, obstacle)
    at_least_float32 = torch.promote_types(query.dtype, torch.float32)
    # torch's cpu kernel adds gradients up in the type of its input: give it float32.
    computed = at_least_float32 if query.device.type == "cpu" else query.dtype
    length = layout.anchor_length
    sizes = [length, *layout.document_lengths.tolist()]
    # split, not slices: its backward is one concatenation, that of a slice fills the whole window.
    anchors, *documents = zip(
        *(torch.split(pack(t, layout).to(computed), sizes, dim=2) for t in (query, key, value)),
        strict=True,
    )
    attended = partial(_attended, window=layout.sliding_window, scale=scale)
    if not length:
        outputs = list(map(attended, documents, layout.sequences))
    else:
        first, *sequences = layout.sequences
        outputs = [attended(anchors, first)]
        # Every document adds to the anchor's gradient: thousands of terms, too many for bfloat16.
        exact = [anchor.to(at_least_float32) for anchor in anchors]
        for document, positions in zip(documents, sequences, strict=True):
            pairs = zip(exact, document, strict=True)
            both = [torch.cat([anchor.to(computed), part], dim=2) for anchor, part in pairs]
            outputs.append(attended(both, positions)[:, :, length:])
    return unpack(torch.cat(outputs, dim=2).to(query.dtype), layout)


def _attended(
    tensors: Sequence[Tensor], positions: IntArray, *, window: int | None, scale: float
) -> Tensor:
    query, key, value = tensors
    attend = partial(
        scaled_dot_product_attention, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )
    if window is None or positions[-1] - positions[0] < window:
        return attend(query, key, value, is_causal=True)
    step = max(BLOCK, window // 4)
    queries, keys, values = (torch.split(tensor, step, dim=2) for tensor in tensors)
    outputs = []
    for last, part in enumerate(queries):
        rows = positions[last * step :][:step]
        first = int(first_seen(rows[:1], positions, window)[0]) // step
        apart = rows[:, np.newaxis] - positions[first * step :][: (last + 1 - first) * step]
        seen = torch.tensor((apart >= 0) & (apart < window), device=query.device)
        key, value = (torch.cat(blocks[first : last + 1], dim=2) for blocks in (keys, values))
        outputs.append(attend(part, key, value, attn_mask=seen))
    return torch.cat(outputs, dim=2)
