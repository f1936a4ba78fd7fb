"""How the heads of attention layers lay out their rotary pairs, found by calling the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ropewalk.errors import Unsupported
from ropewalk.models.anatomy import Anatomy, AttentionLayer, anatomy_of, by_pair
from ropewalk.models.probe import Heard, Probe

PROBED = 6  # positions that show how a head lays out its pairs
QUERY_NORMS = ("q_norm", "q_layernorm", "query_layernorm", "qk_norm")
"""What attention layers call a norm of their queries, where a factor of the projection is lost."""


@dataclass(frozen=True)
class HeadLayout:
    """The query heads of a layer, and where their pairs are."""

    heads: int
    head_dim: int
    first: int
    """The first dimension that rotates."""
    pairs: int
    order: Literal["halves", "neighbours"]

    def components(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Both components of each pair, in float32."""
        turning = states[..., self.first : self.first + 2 * self.pairs].float()
        if self.order == "halves":
            return turning[..., : self.pairs], turning[..., self.pairs :]
        return turning[..., ::2], turning[..., 1::2]

    def by_dimension(self, per_pair: Tensor) -> Tensor:
        """A factor for each dimension of a head from one for each pair; 1 where nothing rotates."""
        factors = per_pair.new_ones(*per_pair.shape[:-1], self.head_dim)
        turning = factors[..., self.first : self.first + 2 * self.pairs]
        if self.order == "halves":
            turning.copy_(torch.cat((per_pair, per_pair), dim=-1))
        else:
            turning.copy_(per_pair.repeat_interleave(2, dim=-1))
        return factors


Layouts = Mapping[AttentionLayer, HeadLayout]


def head_layouts(model: nn.Module, layer_type: str, anatomy: Anatomy | None = None) -> Layouts:
    """How the heads of each layer of a type lay out their pairs, from calling the layers.

    The anatomy is found where it is not given, in a model without a plan of ours. Refused where the
    layers turn their queries in a way that is none of those known.
    """
    anatomy = anatomy or anatomy_of(model)
    layers = [layer for layer in anatomy.layers if layer.layer_type == layer_type]
    probe = Probe(model, anatomy)
    [heard] = probe.forward(range(PROBED)) if anatomy.layers else [{}]
    if not anatomy.layers or any(layer not in heard for layer in layers):
        raise Unsupported(
            f"{anatomy.present.model}: its attention layers do not use transformers' attention "
            "interface, so ropewalk can neither take a gradient by the schedule nor scale queries "
            "by pair"
        )
    return {layer: head_layout(probe, anatomy, layer, heard[layer]) for layer in layers}


def head_layout(probe: Probe, anatomy: Anatomy, layer: AttentionLayer, heard: Heard) -> HeadLayout:
    """How the heads of one layer lay out their pairs, where a forward has been heard already."""
    pairs = anatomy.present.longest(layer.layer_type).geometry.pairs
    [rotary, *_] = [each for each in anatomy.rotaries if layer.layer_type in each.prefixes]
    cos, sin = heard.cos_sin
    turned = probe.replay(layer, heard, cos, sin)
    still = probe.replay(layer, heard, torch.ones_like(cos), torch.zeros_like(sin))
    doubled = probe.replay(layer, heard, 2 * cos, 2 * sin)
    cos, sin = (by_pair(each, rotary.arrangement)[0].float() for each in (cos, sin))
    orders: tuple[Literal["halves", "neighbours"], ...] = ("halves", "neighbours")
    heads, _, head_dim = turned.query.shape
    for first in dict.fromkeys((0, head_dim - 2 * pairs)):
        for order in orders:
            layout = HeadLayout(heads, head_dim, first, pairs, order)
            if all(
                _turns(layout, before, after, cos, sin)
                and _turns(layout, before, twice, 2 * cos, 2 * sin)
                for before, after, twice in (
                    (still.query, turned.query, doubled.query),
                    (still.key, turned.key, doubled.key),
                )
            ):
                return layout
    raise Unsupported(
        f"{type(layer.module).__name__} turns its queries in an order of pairs that ropewalk does "
        "not know, or norms them afterwards, so it can neither take a gradient by the schedule nor "
        "scale queries by pair"
    )


def _turns(layout: HeadLayout, still: Tensor, turned: Tensor, cos: Tensor, sin: Tensor) -> bool:
    a, b = layout.components(still)
    c, d = layout.components(turned)
    size = float(torch.cat([c, d]).abs().max())
    # Compared in float32, whatever the model computes in.
    rounding = max(torch.finfo(turned.dtype).eps, torch.finfo(torch.float32).eps)
    tolerance = 8 * rounding * max(size, 1e-30)
    return bool(
        torch.allclose(c, a * cos - b * sin, rtol=0, atol=tolerance)
        and torch.allclose(d, b * cos + a * sin, rtol=0, atol=tolerance)
    )
