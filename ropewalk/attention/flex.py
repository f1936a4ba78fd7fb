"""The flex engine: torch's FlexAttention under a block mask that is built once for each layout.

The kernel walks only those blocks of 128 × 128 in which some query sees some key. In document
order these are known in closed form (`visited_blocks`), so no mask of length² is ever evaluated.
Documents and positions travel as tensors: another layout of the same length is new data for the
compiled kernel, not a new kernel. On a CPU the kernel has no backward.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

from ropewalk.attention import inputs
from ropewalk.attention.inputs import pack, unpack
from ropewalk.attention.layout import ANCHOR, PADDING, AttentionLayout, BoolArray, IntArray
from ropewalk.errors import Unsupported

BLOCK = 128

# fullgraph: without it, a graph that fails to compile runs unfused, with length² scores, unnoticed.
# dynamic: torch 2.13 writes C++ that does not compile for some lengths that vary.
_compiled = {
    "cuda": torch.compile(flex_attention, fullgraph=True),
    "cpu": torch.compile(flex_attention, fullgraph=True, dynamic=False),
}


def obstacle(device: torch.device, dtype: torch.dtype, layout: AttentionLayout) -> str | None:
    if device.type not in _compiled:
        return f"flex has kernels for cuda and cpu, the tensors are on {device.type}"
    if dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"flex computes in float32, bfloat16 or float16, the tensors are {dtype}"
    return None


def attend(
    query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, *, scale: float
) -> Tensor:
    inputs.check(query, key, value, layout, obstacle)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if learns and query.device.type == "cpu":
        raise Unsupported("flex has no backward pass on the CPU; use per_document or reference")
    # Padding goes last rather than away, so that all windows of one length share one kernel.
    tokens = layout.order.size
    missing = (0, 0, 0, layout.length - tokens)
    query, key, value = (pad(pack(tensor, layout), missing) for tensor in (query, key, value))
    output: Tensor = _compiled[query.device.type](
        query,
        key,
        value,
        block_mask=block_mask(layout, query.device),
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return unpack(output[:, :, :tokens], layout)


@lru_cache(maxsize=64)  # every layer of a model asks for the same few layouts
def block_mask(layout: AttentionLayout, device: torch.device) -> BlockMask:
    """The mask of the packed window, padding last, as FlexAttention takes it."""
    packed_ids = np.full(layout.length, PADDING)
    packed_ids[: layout.order.size] = layout.document_ids[layout.order]
    ids = torch.tensor(packed_ids, device=device)
    position = torch.tensor(_packed_positions(layout, layout.length), device=device)
    near = torch.tensor(layout.sliding_window or layout.reach(), device=device)

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same_document = ids[query] == ids[key]
        present = ids[query] != PADDING  # padding keys are later than every query that is present
        allowed = (same_document | (ids[key] == ANCHOR)) & (position[query] - position[key] < near)
        return (query >= key) & allowed & present

    some, every = visited_blocks(layout)
    partial_count, partial_index = _ragged(some & ~every, device)
    full_count, full_index = _ragged(every, device)
    return BlockMask.from_kv_blocks(
        partial_count,
        partial_index,
        full_count,
        full_index,
        BLOCK_SIZE=BLOCK,
        mask_mod=sees,
        seq_lengths=(layout.length, layout.length),
    )


def visited_blocks(layout: AttentionLayout) -> tuple[BoolArray, BoolArray]:
    """[query block, key block] of the packed window: where some pair is seen, and where every is.

    In document order a block of queries sees the anchor and one unbroken run of keys: from the
    start of its first query's document to its last query. A sliding window leaves out the blocks
    whose positions lie too far apart.
    """
    anchor, tokens = layout.anchor_length, layout.order.size
    blocks = -(-layout.length // BLOCK)
    lengths = np.array([anchor, *layout.document_lengths])
    ends = np.cumsum(lengths)
    first_query = np.arange(blocks) * BLOCK
    last_query = np.minimum(first_query + BLOCK, tokens) - 1
    present = first_query < tokens
    # Which document a query is in; blocks of padding are given the last one and then masked out.
    document = np.searchsorted(ends, np.minimum(first_query, tokens - 1), side="right")
    start, end = (ends - lengths)[document], ends[document]

    first_key, last_key = first_query, first_query + BLOCK - 1
    causal = present[:, np.newaxis] & (first_key <= last_query[:, np.newaxis])
    some = causal & ((last_key >= start[:, np.newaxis]) | (first_key < anchor))
    # What the run and the anchor leave out is a gap between them, which the first document lacks.
    run = np.where(start == anchor, 0, start)
    one_document = last_query < end
    seen_by_all = (first_key >= run[:, np.newaxis]) & one_document[:, np.newaxis]
    before = last_key <= first_query[:, np.newaxis]
    every = some & before & (seen_by_all | (last_key < anchor))
    if layout.sliding_window is not None:
        rows = _packed_positions(layout, blocks * BLOCK).reshape(blocks, BLOCK)
        lowest, highest = rows.min(axis=1), rows.max(axis=1)
        some &= lowest[:, np.newaxis] - highest < layout.sliding_window
        every &= highest[:, np.newaxis] - lowest < layout.sliding_window
    return some, every


def _packed_positions(layout: AttentionLayout, length: int) -> IntArray:
    """In document order. Padding comes last, at the furthest position, and widens nothing."""
    positions = layout.positions[layout.order]
    return np.concatenate([positions, np.full(length - positions.size, positions.max(initial=0))])


def _ragged(blocks: BoolArray, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each query block, how many key blocks and which: those first, then the others."""
    count = torch.tensor(blocks.sum(axis=1), dtype=torch.int32, device=device)
    which = np.argsort(~blocks, axis=1, kind="stable")
    index = torch.tensor(which, dtype=torch.int32, device=device)
    return count[None, None], index[None, None]
