"""The rotating parts of a model: rotary modules, attention layers, and what passes between them.

transformers' decoders share one shape: a rotary module computes cos and sin from the position ids,
once a forward for each layer type, and every attention layer takes them and hands its rotated
queries and keys to the attention interface. A model is taken by this shape, never by its name.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.models.config import present_plan
from ropewalk.models.config.layers import ROTATES_BY_LAYER

# How a module lays its pairs out in cos and sin: (0 1 2 0 1 2), (0 0 1 1 2 2), or (0 1 2).
Arrangement = Literal["halves", "neighbours", "pairs"]

# The name under which queries.py stands in transformers' table of attention functions.
ROUTE = "ropewalk_logits"

INVERSE_FREQUENCIES = re.compile(
    r"(?!original_|.*_original_)(?P<prefix>(?P<layer_type>.+)_)?inv_freq"
)


@dataclass(frozen=True, eq=False)
class RotaryModule:
    """One rotary module of the model, and how it speaks."""

    module: nn.Module
    held_by: tuple[tuple[nn.Module, str], ...]
    """The parents that hold it, and under which name."""
    prefixes: Mapping[str, str]
    """Layer type to the prefix of its buffers: `` or `sliding_attention_`."""
    arrangement: Arrangement
    keeps_float32: bool
    """True if it returns float32 cos and sin whatever the model's dtype."""
    obeys: bool
    """True if it turns by its buffers; some modules compute frequencies anew in every call."""
    returns_complex: bool = False
    """True if it returns cos + i sin in one tensor."""
    recompose: Callable[[Tensor], Tensor] | None = None
    """Gives each pair its axis, if positions have several axes (M-RoPE)."""


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One attention module that rotates."""

    module: nn.Module
    layer_type: str
    """The layer type of the plan that it follows."""
    config: Any
    """Its stock config, which says what computes its attention."""
    routed_config: Any
    """A copy of it that routes attention through ropewalk (queries.py)."""


@dataclass(frozen=True, eq=False)
class Anatomy:
    """The parts of one model that a plan changes."""

    present: ContextPlan
    """The model's plan by its config."""
    rotaries: tuple[RotaryModule, ...]
    layers: tuple[AttentionLayer, ...]


def anatomy_of(model: nn.Module) -> Anatomy:
    """Find all that rotates in a stock model."""
    config: Any = model.config
    present = present_plan(config)
    rotaries = _rotary_modules(model, present)
    if not rotaries:
        raise Unsupported(
            f"{present.model}: models of type {config.model_type!r} rotate inside their attention "
            "code and have no rotary module that a plan could be installed in"
        )
    return Anatomy(present, rotaries, _attention_layers(model, present))


def arrange(per_pair: Tensor, arrangement: Arrangement) -> Tensor:
    """Values by pair, laid out as a rotary module lays out its cos and sin."""
    if arrangement == "halves":
        return torch.cat((per_pair, per_pair), dim=-1)
    if arrangement == "neighbours":
        return per_pair.repeat_interleave(2, dim=-1)
    return per_pair


def by_pair(arranged: Tensor, arrangement: Arrangement) -> Tensor:
    """The inverse of `arrange`."""
    if arrangement == "halves":
        return arranged[..., : arranged.shape[-1] // 2]
    return arranged[..., ::2] if arrangement == "neighbours" else arranged


def _rotary_modules(model: nn.Module, present: ContextPlan) -> tuple[RotaryModule, ...]:
    held_by: dict[nn.Module, list[tuple[nn.Module, str]]] = {}
    for parent in model.modules():
        for name, child in parent.named_children():
            held_by.setdefault(child, []).append((parent, name))
    modules = []
    for module, parents in held_by.items():
        matches = (INVERSE_FREQUENCIES.fullmatch(n) for n, _ in module.named_buffers(recurse=False))
        prefixes = {match["layer_type"] or "": match["prefix"] or "" for match in matches if match}
        # Rotary modules of vision towers turn patches, not positions.
        if not prefixes or "position_ids" not in inspect.signature(module.forward).parameters:
            continue
        if list(prefixes) == [""] and len(present.schedules) == 1:
            prefixes = dict.fromkeys(present.schedules, "")
        if not set(prefixes) <= set(present.schedules):
            raise Unsupported(
                f"{present.model}: its config names the layer types {sorted(present.schedules)}, "
                f"but its rotary module {sorted(prefixes)}"
            )
        modules.append(_read(module, tuple(parents), prefixes, present))
    return tuple(modules)


@torch.no_grad()
def _read(
    module: Any,
    held_by: tuple[tuple[nn.Module, str], ...],
    prefixes: Mapping[str, str],
    present: ContextPlan,
) -> RotaryModule:
    """Find out how a module speaks, by calling it."""
    layer_type, prefix = next(iter(prefixes.items()))
    buffer = f"{prefix}inv_freq"

    def call() -> Any:
        device = getattr(module, buffer).device
        hidden = torch.zeros(1, dtype=torch.bfloat16, device=device)
        positions = torch.arange(4, device=device)[None]
        return module(
            hidden, position_ids=positions, **({"layer_type": layer_type} if prefix else {})
        )

    def called_sines() -> Tensor:
        returned = call()
        if isinstance(returned, Tensor) and returned.is_complex():
            return returned.imag
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise Unsupported(
                f"{type(module).__name__} returns neither cos and sin nor complex rotations, so "
                "ropewalk cannot install a plan in it"
            )
        sines: Tensor = returned[1]
        return sines

    # Sines of a few positions tell how pairs are laid out, and in which number format.
    sin = called_sines()
    # A module obeys its buffer if twice the frequencies turn position 1 as far as 2 was turned.
    stock = {name: getattr(module, name) for name in (buffer, "rope_type")}
    try:
        module.rope_type = default_kind(module.rope_type)
        setattr(module, buffer, 2 * stock[buffer])
        doubled = called_sines()
    finally:
        for name, value in stock.items():
            setattr(module, name, value)
    return RotaryModule(
        module,
        held_by,
        prefixes,
        arrangement_of(module, sin, present.longest(layer_type).geometry.pairs),
        keeps_float32=sin.dtype == torch.float32,
        obeys=torch.equal(doubled[:, 1], sin[:, 2]),
        returns_complex=isinstance(call(), Tensor),
        recompose=getattr(module, "recomposition_frequencies", None),
    )


def default_kind(rope_type: Any) -> Any:
    """The rope type, or types by layer type, with which a module uses its buffers unchanged."""
    return dict.fromkeys(rope_type, "default") if isinstance(rope_type, dict) else "default"


def arrangement_of(module: nn.Module, sin: Tensor, pairs: int) -> Arrangement:
    arrangements: tuple[Arrangement, ...] = ("halves", "neighbours", "pairs")
    for arrangement in arrangements:
        values = by_pair(sin, arrangement)
        if values.shape[-1] == pairs and torch.equal(arrange(values, arrangement), sin):
            return arrangement
    raise Unsupported(
        f"{type(module).__name__} returns {sin.shape[-1]} values a position, in an order that "
        f"ropewalk does not know for {pairs} pairs"
    )


def _attention_layers(model: nn.Module, present: ContextPlan) -> tuple[AttentionLayer, ...]:
    layers = []
    routed: dict[int, Any] = {}
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        index = getattr(module, "layer_idx", None)
        if config is None or index is None or not hasattr(module, "scaling"):
            continue
        layer_type = layer_type_of(config, index, present)
        if layer_type is None:
            continue
        if id(config) not in routed:
            routed[id(config)] = copy.deepcopy(config)
            routed[id(config)]._attn_implementation = ROUTE
        layers.append(AttentionLayer(module, layer_type, config, routed[id(config)]))
    return tuple(layers)


def layer_type_of(config: Any, index: int, present: ContextPlan) -> str | None:
    """The layer type of the plan that a layer follows; None if it does not rotate."""
    for key in ROTATES_BY_LAYER:
        rotates = getattr(config, key, None)
        if rotates and not rotates[index]:
            return None
    types = getattr(config, "layer_types", None)
    kind = types[index] if types else FULL_ATTENTION
    if kind in present.schedules:
        return str(kind)
    # A single setting for full attention serves all layers; one for other layers, only those.
    return FULL_ATTENTION if list(present.schedules) == [FULL_ATTENTION] else None
