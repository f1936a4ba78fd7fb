"""Eq. 4 and Eq. 5 of the BFloat16 article, written down as they stand, from the eager attention."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor


def attention_and_logits(
    model: Any, tokens: Tensor, shift: int
) -> tuple[list[Tensor], list[Tensor]]:
    """ATTN(X, Δ) and A(Δ) of every layer, [heads, L, L], from a stock forward in eager mode."""
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    logits: list[Tensor] = []
    softmax = torch.nn.functional.softmax

    def spy(values: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        logits.append(values[0].clone())
        return softmax(values, *args, **kwargs)

    torch.nn.functional.softmax = spy  # type: ignore[assignment]
    try:
        with torch.no_grad():
            output = eager(
                tokens[None],
                position_ids=torch.arange(shift, shift + len(tokens))[None],
                output_attentions=True,
            )
    finally:
        torch.nn.functional.softmax = softmax
    return [own[0] for own in output.attentions], logits


def equation_4(first: list[Tensor], second: list[Tensor]) -> float:
    total = 0.0
    for a, b in zip(first, second, strict=True):
        heads, length, _ = a.shape
        for h in range(heads):
            for j in range(length):
                column = sum(abs(float(a[h, i, j]) - float(b[h, i, j])) for i in range(length))
                total += column / (length - j)
    return total


def equation_5(first: list[Tensor], second: list[Tensor], length: int) -> float:
    total = 0.0
    for a, b in zip(first, second, strict=True):
        for h in range(a.shape[0]):
            total += sum(abs(float(a[h, i, 0]) - float(b[h, i, 0])) for i in range(length))
    return total / length
