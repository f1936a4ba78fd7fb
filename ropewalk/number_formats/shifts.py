"""The change of attention when all positions move: Eq. 4 and Eq. 5 of the BFloat16 article.

    D(X, Δ₁, Δ₂) = Σ_layers,heads Σ_j n_j Σ_i |attention_ij(Δ₁) − attention_ij(Δ₂)|
    D_logit      = Σ_layers,heads (1/T) Σ_i |A_i1(Δ₁) − A_i1(Δ₂)|

with j from 1 and n_j = 1/(L−j+1). Rotary attention is relative, so in exact arithmetic both are
zero. A forward at Δ₂ leaves the rotated queries and keys of every layer, which are small; each
forward at a Δ₁ is then compared to it layer by layer and row block by row block. Attention is
causal, so one forward of the longest sequence holds the values of all shorter ones: they are read
off as the rows pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ropewalk.number_formats.arms import Arm
from ropewalk.number_formats.stage import AttentionCall, OpenModel, RowListener

# Tokens at the end of a sequence whose loss is reported.
SCORED = 256

FloatArray = NDArray[np.float64]


class ShiftDifference(NamedTuple):
    """Two shifts of one sequence under one arm."""

    first: int
    second: int
    lengths: tuple[int, ...]
    attention: FloatArray
    """D of Eq. 4 by [length, layer, head]."""
    logit: FloatArray
    """D_logit of Eq. 5 by [length, layer, head], for the first token."""
    tokens: FloatArray
    """n_j Σ_i |…| at the longest length by [layer, head, position j]."""
    losses: tuple[float, float]
    """Mean next-token loss of the last tokens at Δ₁ and Δ₂."""


@dataclass(eq=False)
class _LayerSums:
    """The sums over the rows so far, and their readings at the lengths asked for."""

    columns: Tensor
    """[head, key] Σ_i |difference of weights|."""
    first: Tensor
    """[head] Σ_i |difference of logits of the first key|."""
    attention: list[Tensor]
    logit: list[Tensor]

    def read(self, length: int) -> None:
        normalisation = 1 / torch.arange(length, 0, -1, device=self.columns.device).double()
        self.attention.append((self.columns[:, :length] * normalisation).sum(-1))
        self.logit.append(self.first / length)


def shift_differences(
    stage: OpenModel,
    tokens: Tensor,
    arm: Arm,
    second: int,
    firsts: Sequence[int],
    *,
    lengths: Sequence[int] = (),
    passed: Callable[[], None] = lambda: None,
) -> Iterator[ShiftDifference]:
    """Every Δ₁ of `firsts` against one Δ₂; `passed` is called after each forward pass."""
    ends = (*(n for n in sorted(set(lengths)) if n < len(tokens)), len(tokens))
    reference: list[AttentionCall] = []
    scored = min(SCORED, len(tokens) - 1)
    logits = stage.run(tokens, second, arm, listener=reference.append, edges=ends, keep=scored + 1)
    loss_second = mean_loss(logits, tokens[-scored:])
    passed()
    for first in firsts:
        sums: list[_LayerSums] = []
        logits = stage.run(
            tokens,
            first,
            arm,
            listener=lambda call, sums=sums: _comparison(reference[call.layer], sums, ends),  # type: ignore[misc]
            edges=ends,
            keep=scored + 1,
        )
        losses = (mean_loss(logits, tokens[-scored:]), loss_second)
        passed()
        yield _collected(first, second, ends, sums, losses)


def _comparison(
    reference: AttentionCall, sums: list[_LayerSums], ends: Sequence[int]
) -> RowListener:
    heads, length = reference.query.shape[:2]
    device = reference.query.device
    dtype = torch.float64 if device.type != "mps" else torch.float32
    layer = _LayerSums(
        torch.zeros(heads, length, dtype=dtype, device=device),
        torch.zeros(heads, dtype=dtype, device=device),
        [],
        [],
    )
    sums.append(layer)

    def hear(start: int, end: int, first_column: Tensor, weights: Tensor) -> None:
        block = reference.logits(start, end)
        layer.first += (first_column - block[..., 0]).abs().sum(-1, dtype=dtype)
        difference = reference.weights(block, start, end).sub_(weights).abs_()
        layer.columns[:, :end] += difference.sum(1)
        if end in ends:
            layer.read(end)

    return hear


def _collected(
    first: int,
    second: int,
    ends: tuple[int, ...],
    sums: Sequence[_LayerSums],
    losses: tuple[float, float],
) -> ShiftDifference:
    columns = torch.stack([layer.columns for layer in sums]).cpu().double().numpy()

    def stacked(values: Sequence[list[Tensor]]) -> FloatArray:
        by_layer = [torch.stack(layer).cpu().double().numpy() for layer in values]
        return np.stack(by_layer, axis=1)

    return ShiftDifference(
        first,
        second,
        ends,
        stacked([layer.attention for layer in sums]),
        stacked([layer.logit for layer in sums]),
        columns / np.arange(ends[-1], 0, -1),
        losses,
    )


def mean_loss(logits: Tensor, targets: Tensor) -> float:
    """The mean loss of the last tokens, each predicted by the row before it."""
    targets = targets.to(logits.device)
    return float(torch.nn.functional.cross_entropy(logits[:-1].double(), targets))
