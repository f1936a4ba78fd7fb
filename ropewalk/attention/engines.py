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
class Engine:
    name: str
    attend: Attend
    obstacle: Obstacle


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("varlen", varlen.attend, varlen.obstacle),
        Engine("flex", flex.attend, flex.obstacle),
        Engine("per_document", per_document.attend, per_document.obstacle),
        Engine("reference", reference.attend, reference.obstacle),
    )
}


def choose(
    device: torch.device | str,
    dtype: torch.dtype,
    layout: AttentionLayout,
    *,
    engine: str | None = None,
) -> Engine:
    """Return the fastest exact engine that can train here, or the requested one if it can."""
    device = torch.device(device)
    runnable = [e for e in ENGINES.values() if e.obstacle(device, dtype, layout) is None]
    if engine is None:
        return min(runnable, key=lambda e: _speed_order(device, layout).index(e.name))
    if engine not in ENGINES:
        raise UnknownName("attention engine", engine, ENGINES)
    if reason := ENGINES[engine].obstacle(device, dtype, layout):
        raise Unsupported(f"{reason}; engines that can: {', '.join(e.name for e in runnable)}")
    return ENGINES[engine]


def _speed_order(device: torch.device, layout: AttentionLayout) -> tuple[str, ...]:
    # One document is one SDPA call, which takes the fastest kernel that the device has, unless a
    # sliding window needs a mask. On a cpu, flex cannot train.
    alone = layout.document_lengths.size <= 1 and layout.sliding_window is None
    if device.type != "cuda" or alone:
        return ("per_document", "reference", "varlen", "flex")
    return ("varlen", "flex", "per_document", "reference")
