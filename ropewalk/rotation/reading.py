"""The rotation that a live object uses, read by its structure: cos and sin at any positions.

Three forms are known: modules of transformers, which compute cos and sin from position ids; tables
of vLLM and SGLang, with a row for each position; and bare inverse frequencies. A plan, a folder and
a GGUF file are read the same way, so any two of these can be compared. A module that rotates in
another form is refused by its path, since what cannot be read cannot be called equal.
"""

from __future__ import annotations

import copy
import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import InputError, RopewalkError, Unsupported, first_line, shortened
from ropewalk.models.anatomy import (
    INVERSE_FREQUENCIES,
    Arrangement,
    arrangement_of,
    by_pair,
    layer_type_of,
)
from ropewalk.models.config import present_plan
from ropewalk.models.proof import FLOAT32
from ropewalk.models.rotary import PlannedRotary
from ropewalk.models.source import installed_plan, resolve
from ropewalk.schedule import FloatArray, PairLayout

Positions: TypeAlias = Sequence[int]
CosSin: TypeAlias = Callable[[Positions, int], FloatArray]
"""[2, positions, pairs], in a sequence of a length."""

TABLES = ("cos_sin_cache", "long_short_cos_sin_cache")
_NUMBER = re.compile(r"\.(\d+)(?:\.|$)")
_ROTATES = re.compile("rotary|rope", re.IGNORECASE)
# Towers turn patches of pictures or frames of sound, and the indexer of sparse attention may lay
# its pairs out otherwise than attention does.
_ASIDE = re.compile(r"(^|\.)(vis|vit|image|audio|speech|\w*(tower|indexer))")


@dataclass(frozen=True, eq=False)
class Reading:
    """One rotation, and the layers that share it."""

    place: str
    cos_sin: CosSin
    layer_type: str = FULL_ATTENTION
    layers: tuple[int, ...] = ()
    """Their numbers; none if the rotation stands for all layers of its type."""
    rows: float = math.inf
    """The positions that it can turn by."""
    pair_layout: PairLayout | None = None
    """None where the attention code decides it."""
    epsilon: float = 0.0
    """The spacing of the number format of cos and sin."""
    scaled: bool = True
    """False where the attention scaling lies elsewhere."""


@dataclass(frozen=True, eq=False)
class Live:
    """All that was read of one object."""

    name: str
    readings: tuple[Reading, ...]
    plan: ContextPlan | None = None
    """The plan that it is, or that its config states."""
    unread: tuple[str, ...] = ()
    states_heads: bool = False
    """True for a plan or a config: it turns the pairs of the model that is to follow it."""


def read(live: Any) -> Live:
    """Read the rotation of an object."""
    if isinstance(live, ContextPlan):
        return _of_plan(live, f"plan {live.id}", states_heads=True)
    if isinstance(live, str | Path):
        path = Path(live)
        is_json = path.suffix == ".json"
        if is_json and path.name != "config.json":
            return _of_plan(ContextPlan.read(path), str(path), states_heads=True)
        return _of_plan(resolve(path).present_plan, str(path), states_heads=is_json)
    if isinstance(live, np.ndarray | Tensor):
        return _of_frequencies(torch.as_tensor(live))
    module = _module(live)
    if module is None:
        raise InputError(
            f"{shortened(live)}: has no rotation that ropewalk can read; give a model, a rotary "
            "module, inverse frequencies, a plan, a folder or a GGUF file"
        )
    return _of_module(module)


def _module(live: Any) -> nn.Module | None:
    """A module, or that of an object with a model, such as a trainer."""
    module = live if isinstance(live, nn.Module) else getattr(live, "model", None)
    return module if isinstance(module, nn.Module) else None


def unwrapped(live: Any) -> Any:
    """The model with a config in a live object, however it is wrapped; None without one."""
    module = _module(live)
    for inner in module.modules() if module is not None else ():
        if hasattr(getattr(inner, "config", None), "get_text_config"):
            return inner
    return None


def _of_plan(plan: ContextPlan, name: str, *, states_heads: bool) -> Live:
    def reading(layer_type: str) -> Reading:
        def cos_sin(positions: Positions, length: int) -> FloatArray:
            return np.stack(plan.schedule(length, layer_type).cos_sin(positions))

        layout = plan.longest(layer_type).geometry.pair_layout
        return Reading(layer_type, cos_sin, layer_type, pair_layout=layout)

    schedules = map(plan.longest, plan.schedules)
    outside = any(each.log_n is not None or each.softmax_scaling != 1 for each in schedules)
    unread = ("factors on logits outside cos and sin",) if outside else ()
    return Live(name, tuple(map(reading, plan.schedules)), plan, unread, states_heads)


def _of_frequencies(inverse: Tensor) -> Live:
    if inverse.ndim != 1 or not inverse.is_floating_point():
        raise InputError(
            f"inverse frequencies of {inverse.dtype} in {inverse.ndim} dimensions: must be a "
            "vector with one real number per pair; give the model's inv_freq"
        )
    frequencies = _float64(inverse)

    def cos_sin(positions: Positions, length: int) -> FloatArray:
        angles = np.multiply.outer(np.asarray(positions, dtype=np.float64), frequencies)
        return np.stack((np.cos(angles), np.sin(angles)))

    reading = Reading("inv_freq", cos_sin, scaled=False)
    return Live("inverse frequencies", (reading,), unread=("the attention scaling",))


def _of_module(live: nn.Module) -> Live:
    model = unwrapped(live)
    stacks = [module for module in live.modules() if isinstance(module, nn.ModuleList)]
    if stacks and not any(map(len, stacks)):
        raise Unsupported(f"{type(live).__name__} has no layers, so nothing in it rotates")
    config, plan = getattr(model, "config", None), installed_plan(model)
    with suppress(RopewalkError):
        plan = plan or (None if config is None else present_plan(config))
    text = config and config.get_text_config()
    readings: dict[tuple[nn.Module, str], Reading] = {}
    unread: list[str] = []
    # No path begins with this; later, what lies inside a module that rotates is a part of it.
    inside = "\0"
    for path, module in live.named_modules(remove_duplicate=False):
        named = bool(_ROTATES.search(type(module).__name__))
        if path.startswith(inside) or not (module._buffers or named):
            continue
        rotations = tuple(rotations_of(module))
        # Seems to rotate: a table in another form, or a module of that name without weights.
        table = any(name in TABLES for name in module._buffers)
        if not (rotations or table or (named and next(module.parameters(), None) is None)):
            continue
        inside = f"{path}." if path else ""
        stated = type(getattr(module, "config", None))
        if _ASIDE.search(path) or stated not in (type(None), type(config), type(text)):
            unread.append(_NUMBER.sub(".*.", path))
            continue
        if not rotations:
            raise Unsupported(
                f"{path or 'the module'} ({type(module).__name__}) rotates in a form that ropewalk "
                "cannot read; it reads transformers' rotary modules, tables named "
                f"{' or '.join(TABLES)}, and inverse frequencies as a tensor"
            )
        # Layers that share a module and a layer type are one reading.
        for reading in rotations:
            layer_type, layers = _layers(path, reading.layer_type, text, plan)
            if layers is not None:
                first = readings.get((module, layer_type), replace(reading, place=path))
                merged = tuple(dict.fromkeys((*first.layers, *layers)))
                readings[module, layer_type] = replace(first, layer_type=layer_type, layers=merged)
    if not readings:
        raise Unsupported(
            f"{type(live).__name__} has no rotary module that ropewalk can read: it has no rotary "
            "positions, or turns queries and keys in its attention code"
        )
    return Live(type(live).__name__, tuple(readings.values()), plan, tuple(dict.fromkeys(unread)))


def rotations_of(module: Any) -> Iterator[Reading]:
    """The rotations of a module, if it has one of the known forms."""
    held: dict[str, Tensor] = {k: v for k, v in module._buffers.items() if v is not None}
    if isinstance(module, PlannedRotary):
        for layer_type in module.layer_types:
            yield _called(module, layer_type, module.arrangement)
    for name, tensor in held.items():
        match = INVERSE_FREQUENCIES.fullmatch(name)
        called = match and "position_ids" in inspect.signature(module.forward).parameters
        # Other modules have tables of that name with more axes, or coefficients beside them.
        table = name in TABLES and tensor.ndim == 2 and tensor.is_floating_point()
        if (called or table) and tensor.is_meta:
            raise Unsupported(f"{name} is on the meta device: load the model first")
        if table and not module._parameters:
            yield _table(module, tensor)
        elif match and called:
            yield _called(module, match["layer_type"] or "", tensor.shape[-1])


def _layers(
    path: str, layer_type: str, text: Any, plan: ContextPlan | None
) -> tuple[str, tuple[int, ...] | None]:
    """The layer type of a rotation, and the layers that it turns; None of one that is not used."""
    numbered = _NUMBER.search(path)
    number = (int(numbered[1]),) if numbered else ()
    count = int(getattr(text, "num_hidden_layers", 0))
    if plan is None:
        return layer_type or FULL_ATTENTION, number or tuple(range(count))
    sole = next(iter(plan.schedules)) if len(plan.schedules) == 1 else ""
    typed = {n: layer_type_of(text, n, plan) for n in number or range(count) if n < count}
    layer_type = layer_type or (typed.get(number[0]) or "" if number else sole)
    if not number and not layer_type:
        raise Unsupported(
            f"{path}: does not say which of the model's layer types it rotates; make the plan "
            "again from the model"
        )
    layers = tuple(n for n, each in typed.items() if each == layer_type)
    return layer_type, None if number and not layers else layers


def _table(module: Any, table: Tensor) -> Reading:
    """The rotation of a module of vLLM or SGLang, which looks cos and sin up by position."""
    two = getattr(module, TABLES[1], None) is table
    first = int(module.original_max_position_embeddings) if two else 0
    # vLLM chooses one of the two lists at its start, SGLang by the positions at hand.
    chosen = getattr(module, "use_long_rope", None) if two else True

    def cos_sin(positions: Positions, length: int) -> FloatArray:
        start = first * (length - 1 > first if chosen is None else chosen)
        rows = torch.as_tensor(positions, device=table.device) + start
        return np.stack(np.split(_float64(table[rows]), 2, axis=-1))

    return Reading(
        *("", cos_sin, ""),
        rows=first if chosen is False else len(table) - first * bool(chosen),
        pair_layout="half" if getattr(module, "is_neox_style", True) else "interleaved",
        epsilon=torch.finfo(table.dtype).eps,
    )


def _called(module: Any, layer_type: str, pairs: Arrangement | int) -> Reading:
    """The rotation of a module of transformers, or of ours, which is called as a model does."""
    setting = getattr(getattr(module, "config", None), "rope_parameters", None) or {}
    axes = 3 if "mrope_section" in setting else 1  # text has the same position on every axis
    nested = isinstance(pairs, str) or f"{layer_type}_inv_freq" in module._buffers
    device = next((tensor.device for tensor in module.buffers()), torch.device("cpu"))

    @torch.no_grad()
    def call(positions: Positions) -> list[Tensor]:
        # Dynamic types keep what they computed for a length, which must not stay in the model.
        twin = copy.copy(module)
        twin._buffers = dict(module._buffers)
        at = torch.as_tensor(positions, device=device)[None]
        at = at.expand(axes, *at.shape) if axes > 1 else at
        words = {"layer_type": layer_type} if nested else {}
        try:
            angles = twin(torch.zeros(1, device=device), position_ids=at, **words)
        except Exception as error:  # whatever the code of a model raises
            raise Unsupported(f"{type(module).__name__}: {first_line(error)}") from None
        both = (angles.real, angles.imag) if isinstance(angles, Tensor) else angles
        return [tensor.reshape(-1, *tensor.shape[-2:])[0] for tensor in both]

    arranged = (
        pairs if isinstance(pairs, str) else arrangement_of(module, call((0, 1, 2))[1], pairs)
    )

    def cos_sin(positions: Positions, length: int) -> FloatArray:
        # The last position of a sequence chooses the factors of some types.
        both = call((*positions, length - 1))
        return np.stack([_float64(by_pair(tensor[:-1], arranged)) for tensor in both])

    layout: PairLayout | None = "interleaved" if arranged == "neighbours" else None
    return Reading("", cos_sin, layer_type, pair_layout=layout, epsilon=FLOAT32)


def _float64(values: Tensor) -> FloatArray:
    return np.asarray(values.detach().double().cpu().numpy())
