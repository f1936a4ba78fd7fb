"""Registration in transformers: an attention and a mask function, both called `ropewalk`.

    register()
    model.set_attn_implementation("ropewalk")
    model(tokens, position_ids=positions, layout=layout)

The layout is an argument of the forward call, one for the batch or one per row, and nothing is kept
between calls. Without a layout, the model gives exactly the results of `sdpa`, also with padding,
packed positions, sliding windows and caches.

Features that change the scores and that no engine here computes are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ropewalk.attention import ulysses
from ropewalk.attention.engines import choose
from ropewalk.attention.layout import PADDING, AttentionLayout
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.models.modes import in_mode

NAME = "ropewalk"

Layouts: TypeAlias = AttentionLayout | Sequence[AttentionLayout]


def register() -> None:
    """Register `attn_implementation="ropewalk"` in transformers. May be called repeatedly."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | DeferredMask | None,
    *,
    layout: Layouts | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: [batch, heads, length, head_dim] in, heads third out."""
    if layout is not None:
        return _under_layout(module, query, key, value, attention_mask, layout, **kwargs), None
    engine, mesh = kwargs.pop("engine", None), kwargs.pop("sequence_parallel", None)
    if engine is not None or mesh is not None:
        raise Unsupported(
            "engine and sequence_parallel need a layout: pass layout=AttentionLayout.full([…]) "
            "for plain causal attention"
        )
    _refuse_scores(kwargs, "softcap", "s_aux")
    if isinstance(attention_mask, DeferredMask):
        attention_mask = attention_mask.dense
    output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    return output, None


# torch.compile could only trace how a layout is prepared, again for each; flex compiles by itself.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _under_layout(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | DeferredMask | None,
    layout: Layouts,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    engine: str | None = None,
    sequence_parallel: DeviceMesh | None = None,
    **kwargs: Any,
) -> Tensor:
    _refuse_scores(kwargs, *_SCORE_CHANGES)
    near = kwargs.get("sliding_window")
    if near is None and isinstance(attention_mask, DeferredMask):
        near = _near_by_mask(module, attention_mask, layout)
    window = _Window(query, layout, sequence_parallel, near)
    _refuse_context(module, window, key, attention_mask, dropout, kwargs)
    if getattr(module, "layer_idx", None) in (None, 0):  # the same for every layer; look once
        window.check_positions(kwargs.get("position_ids"))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    query, key, value = _cast(query, key, value)
    head_dim = value.shape[-1]
    value = pad(value, (0, query.shape[-1] - head_dim))  # values may be narrower than keys

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return _attend_rows(query, key, value, window.rows, scale=scale, engine=engine)

    if sequence_parallel is None:
        output = attend(query, key, value)
    else:
        output = ulysses.attend(attend, query, key, value, sequence_parallel)
    return output[..., :head_dim].transpose(1, 2).contiguous()


def _near_by_mask(module: nn.Module, mask: DeferredMask, layout: Layouts) -> int | None:
    """The sliding window that some models put into their masks alone."""
    rows = [layout] if isinstance(layout, AttentionLayout) else layout
    if mask.near is None or mask.near >= max(row.length for row in rows):
        return None
    if mask.near == getattr(getattr(module, "config", None), "attention_chunk_size", None):
        raise Unsupported(
            f"this layer attends within chunks of {mask.near} tokens, and layouts are not "
            f"supported across chunks; give windows of at most {mask.near} tokens, or leave the "
            "layout out"
        )
    return mask.near


def _cast(*tensors: Tensor) -> Iterator[Tensor]:
    """Cast like autocast for torch's own attention: rotation leaves queries and keys in float32."""
    device = tensors[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    return (tensor if dtype is None else tensor.to(dtype) for tensor in tensors)


def _attend_rows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: Sequence[AttentionLayout],
    *,
    scale: float,
    engine: str | None,
) -> Tensor:
    """Every row under its own layout; one call if all rows have the same."""

    def attend(query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout) -> Tensor:
        chosen = choose(query.device, query.dtype, layout, engine=engine)
        return chosen.attend(query, key, value, layout, scale=scale)

    if len(set(rows)) == 1:
        return attend(query, key, value, rows[0])
    split = zip(*(torch.split(tensor, 1) for tensor in (query, key, value)), rows, strict=True)
    return torch.cat([attend(*row) for row in split])


class _Window:
    """The layouts of a batch, fitted to its tensors, and which part of them is here."""

    def __init__(
        self, query: Tensor, layout: Layouts, mesh: DeviceMesh | None, near: int | None
    ) -> None:
        # A layout for each row of the batch.
        rows = [layout] * len(query) if isinstance(layout, AttentionLayout) else list(layout)
        if len(rows) != len(query):
            raise InvalidValue(
                "layout",
                f"{len(rows)} layouts",
                f"the batch has {len(query)} rows",
                "give one layout per row, or one for all",
            )
        # The part of the window that this rank holds, which its tensors show.
        local, ranks, rank = query.shape[2], 1, 0
        if mesh is not None:
            if mesh.ndim != 1:
                raise InvalidValue(
                    "sequence_parallel",
                    mesh.mesh_dim_names,
                    "must be one dimension of a device mesh",
                    'give mesh["sp"]',
                )
            ranks, rank = mesh.size(), mesh.get_local_rank()
        for row in rows:
            if ulysses.shard_length(row.length, ranks) != local:
                raise InvalidValue(
                    "layout.length",
                    row.length,
                    f"the batch has {local} tokens"
                    + (f" on each of {ranks} ranks" if ranks > 1 else ""),
                    "give the layout of the whole window, including its padding",
                )
        self.rows = [_fitted(row, local * ranks, near) for row in rows]
        self.shard = slice(rank * local, (rank + 1) * local)

    def check_positions(self, position_ids: Tensor | None) -> None:
        """Check that the rotary embedding got the layout's positions, if the model lets us see."""
        if position_ids is None or position_ids.ndim != 2:
            return
        expected = np.stack([row.positions[self.shard] for row in self.rows])
        present = np.stack([row.document_ids[self.shard] for row in self.rows]) != PADDING
        actual = np.broadcast_to(position_ids.cpu().numpy(), expected.shape)
        _compare("position_ids", actual, expected, present, "position_ids=layout.positions")

    def check_padding(self, padding_mask: Tensor) -> None:
        expected = np.stack([row.document_ids[self.shard] for row in self.rows]) != PADDING
        actual = np.broadcast_to(padding_mask.cpu().numpy().astype(bool), expected.shape)
        everywhere = np.ones_like(expected)
        _compare("attention_mask", actual, expected, everywhere, "no attention_mask")


@lru_cache(maxsize=64)  # so that engines see one and the same layout in all layers of a kind
def _fitted(layout: AttentionLayout, length: int, near: int | None) -> AttentionLayout:
    """The padded layout, in a layer with such a sliding window."""
    padded = layout.padded_to(length)
    return padded if near is None else padded.within(near)


def _compare(
    name: str,
    actual: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    where: np.ndarray[Any, Any],
    remedy: str,
) -> None:
    differs = (actual != expected) & where
    if differs.any():
        row, token = (int(i[0]) for i in np.nonzero(differs))
        raise InvalidValue(
            f"{name}[{row}, {token}]",
            actual[row, token].item(),
            f"the layout says {expected[row, token].item()}",
            f"pass {remedy} with a layout",
        )


_SCORE_CHANGES = {
    "softcap": "a soft cap on attention scores (gemma2's attn_logit_softcapping)",
    "s_aux": "attention sinks (gpt_oss)",
    "position_bias": "a position bias on attention scores",
}


def _refuse_scores(kwargs: dict[str, Any], *names: str) -> None:
    """Refuse changes to the scores themselves. Stock `sdpa` ignores sinks without a word."""
    for name in names:
        if kwargs.get(name) is not None:
            raise Unsupported(
                f"attn_implementation={NAME!r} does not compute {_SCORE_CHANGES[name]}; "
                "use attn_implementation='eager' for this model, and pass no layout"
            )


def _refuse_context(
    module: nn.Module,
    window: _Window,
    key: Tensor,
    attention_mask: Tensor | DeferredMask | None,
    dropout: float,
    kwargs: dict[str, Any],
) -> None:
    """Settings that a layout cannot be combined with."""
    local = window.shard.stop - window.shard.start
    if key.shape[2] != local:
        raise Unsupported(
            f"a layout describes a whole window, but only {local} of {key.shape[2]} keys are new "
            "here, and the others come from a cache; give a layout only to a forward over all "
            "tokens, without a cache"
        )
    if kwargs.get("is_causal") is False or not getattr(module, "is_causal", True):
        raise Unsupported(
            "a layout is causal, but this attention looks both ways; leave the layout out"
        )
    if dropout:
        raise Unsupported(
            f"attention dropout = {dropout} cannot be combined with a layout; "
            "set attention_dropout to 0 in the model's config"
        )
    if isinstance(attention_mask, DeferredMask):
        if attention_mask.padding is not None:
            window.check_padding(attention_mask.padding)
    elif attention_mask is not None:
        raise Unsupported(
            f"an attention_mask of shape {tuple(attention_mask.shape)} cannot be combined with a "
            "layout, which is a mask itself; leave the attention_mask out"
        )


class DeferredMask:
    """The mask that `sdpa` would have got, made only if somebody looks at it.

    transformers makes masks before the layers see their arguments, so it would fill length²
    entries for restarting positions or a sliding window even where a layout replaces them.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self.padding: Tensor | None = arguments.get("attention_mask")
        self.near: int | None = arguments.get("local_size")
        """The tokens of a sliding window, or of a chunk."""

    @cached_property
    def dense(self) -> Tensor | None:
        """Made once, for all layers of the forward call."""
        made: Tensor | None = sdpa_mask(**self._arguments)
        return made


def mask(**arguments: Any) -> DeferredMask | Tensor | None:
    """transformers' mask function. Only a whole window can have a layout, so only it is deferred:
    with a part of one, generation may want to look into the mask."""
    offset = arguments["q_offset"]
    starts_at_0 = isinstance(offset, int) and offset == 0  # a tensor with a static cache
    if starts_at_0 and arguments["q_length"] == arguments["kv_length"]:
        return DeferredMask(arguments)
    made: Tensor | None = sdpa_mask(**arguments)
    return made


@torch.no_grad()
def check_apart(model: PreTrainedModel) -> None:
    """Check on this model that documents do not see each other, or raise.

    Some architectures do not pass a forward call's arguments on to their attention, and some mix
    tokens outside attention (convolutions, recurrent layers). Neither raises an error by itself.
    """
    if model.config._attn_implementation != NAME:
        raise InvalidValue(
            "attn_implementation",
            model.config._attn_implementation,
            f"the layout is only seen by {NAME!r}",
            f"call model.set_attn_implementation({NAME!r})",
        )
    layout = AttentionLayout.anchor([5, 3])
    anchor, first, second = slice(0, 1), slice(1, 6), slice(6, 9)
    device = next(model.parameters()).device
    positions = torch.tensor(layout.positions, device=device)[None]
    tokens = torch.arange(layout.length, device=device)[None]

    def effect(changed: slice) -> float:
        others = tokens.clone()
        others[:, changed] += layout.length
        before, after = (
            model(input_ids=ids, position_ids=positions, layout=layout, use_cache=False).logits
            for ids in (tokens, others)
        )
        return float((before - after)[:, second].abs().max())

    # Other tokens in the first document must not reach the second; those in the anchor do.
    with in_mode(model, training=False):
        leak, visible = effect(first), effect(anchor)
    # Not zero: where experts share a matrix product, its rounding depends on all their tokens.
    if leak > 0.1 * visible:
        raise Unsupported(
            f"{type(model).__name__} lets documents see each other: it does not pass the layout on "
            "to its attention, or mixes tokens elsewhere; it cannot be trained on packed documents"
        )
