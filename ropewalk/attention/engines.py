"""The attention engines, and the choice among them.

All compute the same thing (`reference` defines it) through one signature, and differ in where they
run and what they cost:

    varlen         one kernel call for all documents               cuda, half precision
    flex           one kernel over the visited blocks              cuda; forward only on a cpu
    per_document   one SDPA call a document                        anywhere
    reference      the dense mask: length² memory                  anywhere, any precision
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ropewalk.attention import flex, per_document, reference, varlen
from ropewalk.attention.inputs import Obstacle
from ropewalk.attention.layout import AttentionLayout
from ropewalk.errors import UnknownName, Unsupported


class Attend(Protocol):
    """Tensors are [batch, heads, length, head_dim]; key and value may have fewer heads."""

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, *, scale: float
    ) -> Tensor: ...


@dataclass(frozen=True)
class AttentionEngine:
    name: str
    attend: Attend
    obstacle: Obstacle


ENGINES = {
    engine.name: engine
    for engine in (
        AttentionEngine("varlen", varlen.attend, varlen.obstacle),
        AttentionEngine("flex", flex.attend, flex.obstacle),
        AttentionEngine("per_document", per_document.attend, per_document.obstacle),
        AttentionEngine("reference", reference.attend, reference.obstacle),
    )
}


def choose(
    device: torch.device | str,
    dtype: torch.dtype,
    layout: AttentionLayout,
    *,
    engine: str | None = None,
) -> AttentionEngine:
    """Return the fastest exact engine that can train here, or the requested one if it can."""
    device = torch.device(device)
    runnable = [e for e in ENGINES.values() if e.obstacle(device, dtype, layout) is None]
    if engine is None:
        order = _speed_order(device, dtype, layout)
        return min(runnable, key=lambda e: order.index(e.name))
    if engine not in ENGINES:
        raise UnknownName("attention engine", engine, ENGINES)
    if reason := ENGINES[engine].obstacle(device, dtype, layout):
        raise Unsupported(f"{reason}; engines that can: {', '.join(e.name for e in runnable)}")
    return ENGINES[engine]


LONG = 3000
"""Tokens of a document, as the root of their mean square, from which one call of SDPA for each is
fastest on a GPU, in half precision. It has faster kernels than varlen and takes half of its memory,
but a call for each short document costs more than it saves (H100, benchmarks/README.md)."""


def _speed_order(
    device: torch.device, dtype: torch.dtype, layout: AttentionLayout
) -> tuple[str, ...]:
    lengths = layout.document_lengths
    alone = lengths.size <= 1
    half = dtype in (torch.bfloat16, torch.float16)
    few = alone or (half and (lengths**2).mean() >= LONG**2)
    # A sliding window needs a mask in SDPA. On a cpu, flex cannot train.
    if device.type != "cuda" or (few and layout.sliding_window is None):
        return ("per_document", "reference", "varlen", "flex")
    return ("varlen", "flex", "per_document", "reference")
