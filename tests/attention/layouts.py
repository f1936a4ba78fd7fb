"""Random layouts and tensors to attend with: what the attention tests draw from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from ropewalk.attention import AttentionLayout

PARADIGMS: dict[str, Callable[[list[int]], AttentionLayout]] = {
    "full": AttentionLayout.full,
    "intra_document": AttentionLayout.intra_document,
    "intra_document_reset": AttentionLayout.intra_document_reset,
    "anchor": AttentionLayout.anchor,
    "anchor, three tokens": lambda lengths: AttentionLayout.anchor(lengths, anchor_length=3),
    "anchor, tags": lambda lengths: AttentionLayout.anchor(lengths, tag_lengths=2),
    "interleaved": lambda lengths: AttentionLayout.interleaved(lengths, chunks=3, seed=0),
    "interleaved, no anchor": lambda lengths: AttentionLayout.interleaved(
        lengths, chunks=4, seed=1, anchor_length=0
    ),
}


@st.composite
def layouts(
    draw: st.DrawFn, *, max_tokens: int = 400, max_documents: int = 40, slides: bool = True
) -> AttentionLayout:
    """Any paradigm over 1 to 40 documents, some of them empty, at times cut or padded, or under a
    sliding window."""
    paradigm = draw(st.sampled_from(sorted(PARADIGMS)))
    documents = draw(st.integers(1, max_documents))
    # Tags and anchors add a few tokens a document.
    tokens = draw(st.integers(1, max_tokens - 3 * documents))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shares = generator.dirichlet(np.full(documents, draw(st.sampled_from([0.3, 1.0, 10.0]))))
    layout = PARADIGMS[paradigm](generator.multinomial(tokens, shares).tolist())
    if slides and draw(st.booleans()):
        layout = layout.within(draw(st.integers(1, max_tokens)))
    fit = draw(st.sampled_from(["as it is", "padded", "cut"]))
    if fit == "padded":
        return layout.padded_to(draw(st.integers(layout.length, max_tokens)))
    if fit == "cut":
        return layout.cut_to(draw(st.integers(max(layout.anchor_length, 1), layout.length)))
    return layout


@dataclass(frozen=True)
class Case:
    """What to attend with. The tensors follow from the seed, so a failing case prints short."""

    layout: AttentionLayout
    batch: int = 1
    heads: int = 1
    key_heads: int = 1
    head_dim: int = 16
    seed: int = 0

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.head_dim)

    @cached_property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, key, value and the output's gradient: float64 values that bfloat16 can hold."""
        generator = torch.Generator().manual_seed(self.seed)

        def normal(heads: int) -> Tensor:
            shape = (self.batch, heads, self.layout.length, self.head_dim)
            return torch.randn(shape, generator=generator).bfloat16().double()

        return (
            normal(self.heads),
            normal(self.key_heads),
            normal(self.key_heads),
            normal(self.heads),
        )


@st.composite
def cases(draw: st.DrawFn, layout: st.SearchStrategy[AttentionLayout] | None = None) -> Case:
    key_heads = draw(st.sampled_from([1, 2, 8]))
    return Case(
        draw(layouts() if layout is None else layout),
        batch=draw(st.sampled_from([1, 1, 2])),
        heads=draw(st.sampled_from([h for h in (1, 2, 8) if h >= key_heads])),
        key_heads=key_heads,
        head_dim=draw(st.sampled_from([16, 24, 32, 64, 80, 128])),
        seed=draw(st.integers(0, 2**32 - 1)),
    )
