"""What llama.cpp makes of a GGUF file, by its rules and its header; and what it does when run.

By its rules, which were found by running it: an architecture honours a tensor of factors, or does
not; the type `yarn` truncates its ramp whatever the file says, and multiplies its own attention
factor by `rope.scaling.attn_factor`; without a type, that alone multiplies cos and sin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ropewalk.audit.readings import BY_ITS_RULES, Effective, Reading
from ropewalk.audit.traps import TOLERANCE, Finding
from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.errors import InputError, InvalidValue
from ropewalk.exporting.features import LLAMA_CPP_FACTORS
from ropewalk.gguf.header import F32, FREQUENCIES, LONG, SHORT, GGUFHeader
from ropewalk.scaling import linear, yarn
from ropewalk.schedule import FloatArray, RotaryGeometry, RotarySchedule

RUNTIME = "llama.cpp"
DEFAULT_BASE = 10000.0


def geometry_of(header: GGUFHeader) -> RotaryGeometry:
    """The geometry that the file states."""
    heads, width = header.number("attention.head_count"), header.number("embedding_length")
    head = header.number("attention.key_length") or (width and heads and width // heads)
    context = header.number("context_length")
    if not head or not context:
        raise InputError(
            f"{header.path}: states no head size or no context length, so it is no language model "
            "that turns; give the file of the model itself"
        )
    rotary = header.number("rope.dimension_count") or head
    original = header.number("rope.scaling.original_context_length") or context
    try:
        return RotaryGeometry(
            head_dim=int(head),
            rotary_dim=int(rotary),
            base=header.number("rope.freq_base") or DEFAULT_BASE,
            original_length=int(original),
        )
    except InvalidValue as error:
        raise error.within(f"{header.path}: ") from None


def reading(header: GGUFHeader) -> Reading:
    """What llama.cpp turns by, if it follows its rules."""
    geometry = geometry_of(header)
    context = int(header.number("context_length") or geometry.original_length)
    kind = scaling_type(header)
    factor = header.number("rope.scaling.factor") or 1.0
    attention = header.number("rope.scaling.attn_factor") or 1.0
    schedule = RotarySchedule.plain(geometry)
    if kind == "linear" and factor > 1:
        schedule = linear.schedule(schedule, context, factor=factor)
    elif kind == "yarn" and factor > 1:
        schedule = yarn.schedule(
            schedule,
            context,
            beta_fast=header.number("rope.scaling.yarn_beta_fast") or 32.0,
            beta_slow=header.number("rope.scaling.yarn_beta_slow") or 1.0,
            factor=factor,
        )
        attention *= schedule.attention_scaling
    frequencies = schedule.inverse_frequencies

    def divided_by(name: str) -> Effective:
        factors = _factors(header, name, geometry)
        return Effective(frequencies if factors is None else frequencies / factors, attention)

    if LONG in header.tensors or SHORT in header.tensors:
        steps = (
            (geometry.original_length, divided_by(SHORT)),
            (max(context, geometry.original_length + 1), divided_by(LONG)),
        )
        return Reading(
            RUNTIME, BY_ITS_RULES, {FULL_ATTENTION: steps}, "by the declared length", context
        )
    return Reading(
        RUNTIME,
        BY_ITS_RULES,
        {FULL_ATTENTION: ((context, divided_by(FREQUENCIES)),)},
        limit=context,
    )


def scaling_type(header: GGUFHeader) -> str:
    """A factor without a type is taken for a linear one."""
    return str(header.get("rope.scaling.type") or "linear")


def honours_factors(header: GGUFHeader) -> bool:
    return header.architecture in LLAMA_CPP_FACTORS


def _factors(header: GGUFHeader, name: str, geometry: RotaryGeometry) -> FloatArray | None:
    """λ as llama.cpp takes it: None where there is none, or where it does not look."""
    place = header.tensors.get(name)
    if place is None or not honours_factors(header):
        return None
    if place.kind != F32 or place.shape != (geometry.pairs,):
        return None
    factors = header.floats(name)
    return factors if np.all(np.isfinite(factors)) and np.all(factors > 0) else None


def findings(header: GGUFHeader) -> Iterator[Finding]:
    """The traps that lie in the file itself."""
    geometry = geometry_of(header)
    here = (RUNTIME,)
    for name in (FREQUENCIES, LONG, SHORT):
        place = header.tensors.get(name)
        if place is None:
            continue
        if not honours_factors(header):
            yield Finding(
                "factors-ignored",
                here,
                f"{name} stands in a file of architecture {header.architecture}, whose graph does "
                "not take factors",
                "llama.cpp refuses the file, or ignores the factors without a word",
                "save it as architecture llama, where that computes the same (ropewalk export "
                "does for Qwen2)",
            )
        elif place.kind != F32 or place.shape != (geometry.pairs,):
            yield Finding(
                "factor-count",
                here,
                f"{name} has the shape {list(place.shape)} and type {place.kind}; the heads turn "
                f"as {geometry.pairs} pairs, whose factors are F32",
                "llama.cpp refuses the file",
                f"write {geometry.pairs} factors in F32",
            )
    if header.get("rope.freq_base") is None:
        yield Finding(
            "theta-missing",
            here,
            "the file states no rope.freq_base",
            f"llama.cpp takes {DEFAULT_BASE:g}, whatever base the model was pretrained with",
            "convert it again from a config that states rope_theta",
        )
    kind = scaling_type(header)
    attention = header.number("rope.scaling.attn_factor")
    factor = header.number("rope.scaling.factor") or 1.0
    if kind == "yarn" and attention is not None and factor > 1:
        computed = 0.1 * math.log(factor) + 1
        if abs(attention / computed - 1) <= TOLERANCE:
            yield Finding(
                "attention-factor-squared",
                here,
                f"rope.scaling.attn_factor = {attention:.6g} is what the type yarn multiplies cos "
                "and sin by anyway",
                "llama.cpp multiplies one by the other: attention is "
                f"{attention**2:.3g} times as sharp as it should be",
                "leave rope.scaling.attn_factor away",
            )
    if (LONG in header.tensors) != (SHORT in header.tensors):
        yield Finding(
            "factors-dropped",
            here,
            "only one of the two lists of longrope is in the file",
            "llama.cpp uses plain frequencies for the other",
            "convert it again",
        )
