"""Reading a long text some tokens at a time, through a cache: nothing but the cache grows with it.

What a model computes for all positions of 131,072 at once, in its widest layer, takes 3.5 GiB each
time for Llama 3 8B. A chunk takes its share of that, and a mask over all that stands before it,
unless a kernel needs none (attention/cached.py).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ropewalk.attention import cached
from ropewalk.attention.interface import DeferredMask
from ropewalk.costs.memory_and_time import AT_ONCE, LARGEST, MASKED, SMALLEST
from ropewalk.errors import Unsupported
from ropewalk.models.modes import attending
from ropewalk.models.renamed import cache_name

WITHOUT_MASK, BY_HEAD = "ropewalk_cached", "ropewalk_by_head"

# How models fail that take no cache, or not as this file gives it.
_FAILURES = (
    *(AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError),
    Unsupported,
)


class Reader:
    """The layers of a causal model, without its head. Gradients are the caller's affair."""

    def __init__(self, model: Any) -> None:
        self.body = model.base_model
        self._model = model
        self._attention = BY_HEAD
        """The attention of chunks, for a model whose own is torch's kernel."""

    def whole(self, tokens_BL: Tensor) -> Tensor:
        """The hidden states of all tokens, in one forward without a cache."""
        hidden: Tensor = self.body(
            input_ids=tokens_BL.to(self._model.device), use_cache=False
        ).last_hidden_state
        return hidden

    def splits(self, length: int) -> bool:
        """True if a text of so many tokens is read in chunks."""
        return length > AT_ONCE and self.continues

    def chunks(self, tokens_BL: Tensor, cache: Any) -> Iterator[tuple[int, Tensor]]:
        """The hidden states of some tokens at a time, with the place of the first of them.

        The tokens stand after those in the cache, which holds them in the end.
        """
        size = self._size(cache.get_seq_length() + tokens_BL.shape[1])
        for begin in range(0, tokens_BL.shape[1], size):
            yield begin, self.step(tokens_BL[:, begin : begin + size], cache).last_hidden_state

    def step(self, tokens_BL: Tensor, cache: Any) -> Any:
        """One forward over tokens that follow those in the cache, or over the first ones."""
        config = self._model.config.get_text_config()
        # What transformers computes with torch's kernel is computed by ours.
        ours = config._attn_implementation == "sdpa"
        with attending(config, self._attention) if ours else nullcontext():
            return self.body(
                input_ids=tokens_BL.to(self._model.device),
                use_cache=True,
                **{cache_name(self.body): cache},
            )

    def last(self, tokens_BL: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The hidden states of the last token, and the cache; None is one of the model's own."""
        if cache is None:
            state = self.step(tokens_BL, None)
            return state.last_hidden_state[:, -1:], getattr(state, cache_name(self.body))
        for _, hidden in self.chunks(tokens_BL, cache):
            end = hidden[:, -1:].clone()  # a view would keep all of them
        return end, cache

    def cache(self, length: int) -> Any:
        """A cache with room for so many tokens, or None for a model that cannot go on from ours."""
        return self._roomy(length) if self.continues else None

    @cached_property
    def continues(self) -> bool:
        """True if the model reads in chunks, and more than once from one place, as it does at once.

        Not every architecture does, and some do not say so: linear attention may begin anew with
        each chunk. Of the ways to attend, the first under which it does is taken.
        """
        stock = self._model.config.get_text_config()._attn_implementation
        slow = cached.obstacle(self._model.device, self._model.dtype, head_dim=8)
        both = stock == "sdpa" and slow is None
        for self._attention in (WITHOUT_MASK, BY_HEAD) if both else (BY_HEAD,):
            if self._goes_on():
                return True
        return False

    @torch.no_grad()
    def _goes_on(self) -> bool:
        config = self._model.config.get_text_config()
        tokens = torch.arange(8).remainder(config.vocab_size)[None].to(self._model.device)
        try:
            expected = self.whole(tokens)[:, 3:]
            cache = self._roomy(8)
            self.step(tokens[:, :3], cache)
            states = [self.step(tokens[:, 3:], branch(cache)).last_hidden_state for _ in range(2)]
        except _FAILURES:
            return False
        near = float(expected.abs().max()) * torch.finfo(expected.dtype).eps ** 0.5
        return all(bool((each - expected).abs().max() <= near) for each in states)

    def _roomy(self, length: int) -> Any:
        cache = DynamicCache(config=self._model.config)
        cache.layers = [
            _CacheLayer(length) if type(each) is DynamicLayer else each for each in cache.layers
        ]
        return cache

    def _size(self, total: int) -> int:
        """The size of a chunk, for a text of so many tokens."""
        if total <= AT_ONCE or self._attention == WITHOUT_MASK:
            return AT_ONCE
        config = self._model.config.get_text_config()
        # Without a kernel the weights of every head exist at once.
        heads = config.num_attention_heads if config._attn_implementation == "eager" else 1
        return max(SMALLEST, min(LARGEST, MASKED // (total * heads)))


_SCORES = ("softcap", "s_aux", "position_bias", "cache")
"""Arguments of changes to the scores that neither way computes."""


class _CacheLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values in memory that is set aside once. The stock layer copies all of them to add
    some, and both copies exist meanwhile."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length
        self._kept: list[Tensor] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        new = (key_states, value_states)
        begin = self.get_seq_length()
        if not self.is_initialized:
            self.lazy_initialization(*new)
            self._kept = [x.new_empty(*x.shape[:2], self._length, x.shape[3]) for x in new]
        end = begin + key_states.shape[2]
        for kept, states in zip(self._kept, new, strict=True):
            kept[:, :, begin:end] = states
        self.keys, self.values = (kept[:, :, :end] for kept in self._kept)
        return self.keys, self.values


def branch(cache: Any) -> Any:
    """A cache that goes on from here, and leaves this one unchanged.

    Branches of one cache write to the same place, so each is done before the next one begins.
    """
    copied = copy.copy(cache)
    copied.layers = [copy.copy(layer) for layer in cache.layers]
    return copied


def attend_without_mask(
    module: nn.Module,
    query_BHLD: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: DeferredMask,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend by a kernel that aligns causality itself; refuse what it would lose."""
    near = attention_mask.near if sliding_window is None else sliding_window
    reason = cached.obstacle(query_BHLD.device, query_BHLD.dtype, query_BHLD.shape[-1])
    if attention_mask.padding is not None:
        reason = "it knows no padding"
    if near is not None and near == getattr(module.config, "attention_chunk_size", None):
        reason = "its windows slide, and this layer attends within chunks"
    if named := [name for name in _SCORES if kwargs.get(name) is not None]:
        reason = f"it computes no {named[0]}"
    if reason is not None:
        raise Unsupported(f"attention without a mask: {reason}")
    scale = query_BHLD.shape[-1] ** -0.5 if scaling is None else scaling
    output = cached.attend(query_BHLD, key, value, scale=scale, near=near)
    return output.transpose(1, 2).contiguous(), None


def attend_by_head(
    module: nn.Module,
    query_BHLD: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Any]:
    """Attend like `sdpa`, which under a mask copies keys and values for each query head that shares
    them: 2 GiB for one layer of Llama 3 8B at 131,072 tokens."""
    heads, shared = query_BHLD.shape[1], key.shape[1]
    others = (kwargs.get(name) for name in _SCORES)
    if attention_mask is None or heads == shared or any(other is not None for other in others):
        attended, weights = sdpa_attention_forward(
            module, query_BHLD, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return attended, weights
    if attention_mask.dtype == torch.bool:  # once, and not for each head
        zero, never = query_BHLD.new_zeros(()), query_BHLD.new_full((), -torch.inf)
        attention_mask = torch.where(attention_mask, zero, never)
    group = heads // shared
    output_BHLD = torch.cat(
        [
            scaled_dot_product_attention(
                query,
                key[:, head : head + 1].expand(-1, group, -1, -1),
                value[:, head : head + 1].expand(-1, group, -1, -1),
                attn_mask=attention_mask,
                scale=scaling,
            )
            for head, query in enumerate(torch.split(query_BHLD, group, dim=1))
        ],
        dim=1,
    )
    return output_BHLD.transpose(1, 2).contiguous(), None


AttentionInterface.register(BY_HEAD, attend_by_head)
AttentionMaskInterface.register(BY_HEAD, sdpa_mask)
AttentionInterface.register(WITHOUT_MASK, attend_without_mask)
AttentionMaskInterface.register(WITHOUT_MASK, lambda **arguments: DeferredMask(arguments))
