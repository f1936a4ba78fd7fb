"""Listening to a model: the inputs of its attention layers, and those of their attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.errors import Unsupported
from ropewalk.models.anatomy import Anatomy, AttentionLayer
from ropewalk.models.modes import in_mode
from ropewalk.models.queries import listening
from ropewalk.models.renamed import cache_name


@dataclass(frozen=True, eq=False)
class Heard:
    """One attention layer in one forward of one sequence."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    query: Tensor
    """[heads, positions, head size], as it reaches the attention function."""
    key: Tensor
    """The same, with those of the cache before it, repeated to as many heads as the query has."""
    scaling: float

    @property
    def cos_sin(self) -> tuple[Tensor, Tensor]:
        if "position_embeddings" not in self.kwargs:
            raise Unsupported(
                "the attention layers of this model do not take cos and sin from outside, so a "
                "plan cannot be verified in it"
            )
        rotary = self.kwargs["position_embeddings"]
        cos, sin = (rotary.real, rotary.imag) if isinstance(rotary, Tensor) else rotary
        return cos, sin

    def as_given(self, cos: Tensor, sin: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Other cos and sin, in the form in which the layer takes them."""
        complex_ = isinstance(self.kwargs["position_embeddings"], Tensor)
        return torch.complex(cos, sin) if complex_ else (cos, sin)


class ModelProbe:
    """A model to ask. What it is asked about are positions: the tokens do not matter."""

    def __init__(self, model: nn.Module, anatomy: Anatomy) -> None:
        self.model = model
        self.layers = anatomy.layers

    @torch.no_grad()
    def forward(
        self, positions: Sequence[int], cuts: Sequence[int] = ()
    ) -> list[dict[AttentionLayer, Heard]]:
        """One sequence at these positions; with cuts, piece by piece through the model's cache."""
        config: Any = self.model.config
        device = next(self.model.parameters()).device
        ids = torch.arange(len(positions), device=device)[None]
        ids %= config.get_text_config().vocab_size
        # Said explicitly: without a mask, positions with gaps would pass for packed documents.
        mask = torch.ones_like(ids)
        at = torch.tensor(list(positions), device=device)[None]
        cache, named = None, cache_name(self.model)
        pieces = []
        with in_mode(self.model, training=False), _hearing(self.layers) as heard:
            for start, end in pairwise((0, *cuts, len(positions))):
                output = self.model(
                    input_ids=ids[:, start:end],
                    attention_mask=mask[:, :end],
                    position_ids=at[:, start:end],
                    use_cache=bool(cuts),
                    **{named: cache},
                )
                cache = getattr(output, named) if cuts else None
                pieces.append(dict(heard))
                heard.clear()
        return pieces

    @torch.no_grad()
    def replay(self, layer: AttentionLayer, heard: Heard, cos: Tensor, sin: Tensor) -> Heard:
        """The same layer called again with other cos and sin, without any scaling of ours."""
        with in_mode(layer.module, training=False), _hearing((layer,), unscaled=True) as again:
            rotation = heard.as_given(cos, sin)
            layer.module(*heard.args, **{**heard.kwargs, "position_embeddings": rotation})
        return again[layer]


@contextmanager
def _hearing(
    layers: tuple[AttentionLayer, ...], *, unscaled: bool = False
) -> Iterator[dict[AttentionLayer, Heard]]:
    heard: dict[AttentionLayer, Heard] = {}
    by_module = {layer.module: layer for layer in layers}
    called: dict[nn.Module, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def note_call(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        called[module] = args, kwargs

    def note_query(module: nn.Module, query: Tensor, key: Tensor, scaling: float) -> None:
        key_HLD = key[0].repeat_interleave(query.shape[1] // key.shape[1], dim=0)
        heard[by_module[module]] = Heard(*called[module], query[0], key_HLD, scaling)

    with ExitStack() as stack:
        for module in by_module:
            hook = module.register_forward_pre_hook(note_call, with_kwargs=True)
            stack.callback(hook.remove)
        stack.enter_context(listening(layers, note_query, unscaled=unscaled))
        yield heard
