"""The rotation of a GGUF file's heads in llama.cpp, by its rules and the file's header.

The rules were found by running it: an architecture honours a tensor of factors, or does not; the
type `yarn` truncates its ramp whatever the file says, and multiplies its own attention factor by
`rope.scaling.attn_factor`; without a type, that alone multiplies cos and sin.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.gguf.architectures import architecture
from ropewalk.gguf.header import F32, FREQUENCIES, LONG, SHORT, GGUFHeader
from ropewalk.models.families import WITHOUT_ROPE
from ropewalk.models.lengths import Lengths, Stated, three_lengths
from ropewalk.scaling import linear, rebuild, yarn
from ropewalk.schedule import FloatArray, RotaryGeometry, RotarySchedule
from ropewalk.values import table_in

DEFAULT_BASE = 10000.0
CONVERTED = table_in(Path(__file__).with_name("converted.json"))
"""The graphs of llama.cpp that compute model types of folders, once converted."""
LLAMA_CPP_FACTORS = frozenset(CONVERTED["take_factors"])
"""The model types whose graphs take a factor a pair."""
_KEYS = table_in(Path(__file__).with_name("keys.json"))
"""The file's keys by our names, and those of numbers and of whole numbers."""
_FACTORS = ("rope.scale_linear", "rope.scaling.factor")
_OWN_WINDOWS = {"gemma2": 4096, "llama4": 8192}
"""The windows that llama.cpp takes if a file of these states none."""
_BY_LAYER = "attention.head_count"
"""The one of these keys that may be a list, one number for each layer."""
_SCALING_TYPES = ("none", "linear", "yarn", "longrope")
"""The scaling types that llama.cpp loads."""
_LOADED_AS = {FREQUENCIES: "rope_freqs", LONG: "rope_factors", SHORT: "rope_factors"}


def default_yarn(schedule: RotarySchedule, *, betas: bool = False) -> float | None:
    """The factor of a schedule whose factors are those of llama.cpp's own YaRN; else None.

    `betas`: whether the architecture reads where the ramp lies; without, it must lie as usual.
    """
    if [step.method for step in schedule.recipe] != ["yarn"]:
        return None
    parameters, geometry = schedule.recipe[0].parameters, schedule.geometry
    usual = (parameters["beta_fast"], parameters["beta_slow"]) == (32.0, 1.0)
    if not parameters["truncate"] or not (usual or betas):
        return None
    rebuilt = rebuild(schedule.recipe, geometry).rescale_factors
    if not np.array_equal(rebuilt, schedule.rescale_factors):
        return None
    factor = float(str(parameters.get("factor") or schedule.length / geometry.original_length))
    return factor if factor > 1 else None


def geometry_of(header: GGUFHeader) -> RotaryGeometry:
    """The geometry that the file states."""
    if header.architecture in WITHOUT_ROPE:
        raise Unsupported(
            f"{header.path}: models of architecture {header.architecture!r} use "
            f"{WITHOUT_ROPE[header.architecture]}, not a rotary embedding"
        )
    _check_values(header)
    # The head's size, stated or by division, as llama.cpp computes it.
    heads, width = header.count("attention.head_count"), header.count("embedding_length")
    head = header.count("attention.key_length")
    if head is None and width and heads:
        if width % heads:
            raise InputError(
                f"{header.path}: embedding_length = {width} is not divisible by "
                f"attention.head_count = {heads}, and no attention.key_length says how large a "
                "head is; convert the model again"
            )
        head = width // heads
    context = header.count("context_length")
    if not head or not context:
        raise InputError(
            f"{header.path}: states no head size or no context length, so it is not a language "
            "model with RoPE; give the file of the model itself"
        )
    # Errors name the keys of the file.
    try:
        return RotaryGeometry(
            head_dim=head,
            rotary_dim=header.count("rope.dimension_count") or head,
            base=header.number("rope.freq_base") or DEFAULT_BASE,
            original_length=lengths_of(header).reference,
        )
    except InvalidValue as error:
        raise error.renamed(_KEYS["by_name"]).within(f"{header.path}: ") from None


def factor_of(header: GGUFHeader) -> float:
    """The factor of the scaling; llama.cpp reads its older key where the newer is missing."""
    stated = header.number("rope.scaling.factor")
    return (header.number("rope.scale_linear") if stated is None else stated) or 1.0


def lengths_of(header: GGUFHeader) -> Lengths:
    """The three lengths, by the rule for configs (models/lengths.py)."""
    context = header.count("context_length") or 1
    scaled = factor_of(header) > 1 and scaling_type(header) != "none"
    lists = any(name in header.tensors for name in (LONG, SHORT, FREQUENCIES))
    stated = header.count("rope.scaling.original_context_length")
    if stated or scaled or lists:
        reference = stated or context
        return Lengths(reference, max(context, reference), context)
    return three_lengths(Stated(header.architecture, "default", context, "context_length"))


def _check_values(header: GGUFHeader) -> None:
    """Refuse what is stated and cannot be meant, in place of taking a default."""
    for key in (*_KEYS["numbers"], *_KEYS["counts"]):
        value, whole = header.get(key), key in _KEYS["counts"]
        form = "uint32" if whole else "float32"
        mistyped = header.mistyped(f"{header.architecture}.{key}", form)
        if value is None and (key == _BY_LAYER or not mistyped):
            continue
        value = "a list" if value is None else value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        rule = "must be a whole number" if whole else "must be a finite number"
        fits = (
            number and np.isfinite(float(str(value))) and not (whole and isinstance(value, float))
        )
        if fits and mistyped:
            fits, rule = False, f"must be stored as {form} to be loaded"
        elif fits:
            none, least = key in _KEYS["none_by_zero"], 1 if whole or key in _FACTORS else 0
            size = float(str(value))
            fits = (none and size == 0) or (size > 0 and size >= least)
            rule = f"must be {'0 or ' * none}{'at least 1' if least else 'above 0'}"
        if not fits:
            raise InvalidValue(f"{header.path}: {key}", value, rule, "convert the model again")
    kind = header.get("rope.scaling.type")
    if kind is not None and kind not in _SCALING_TYPES:
        raise InvalidValue(
            f"{header.path}: rope.scaling.type",
            kind,
            f"must be one of {', '.join(_SCALING_TYPES)}, which llama.cpp loads",
            "convert the model again",
        )


def assumptions(header: GGUFHeader) -> tuple[str, ...]:
    """The assumptions made in reading the header."""
    stated, base, special = lengths_of(header), header.number("rope.freq_base"), unplanned(header)
    taken = (
        f"no rope.freq_base is stated; the base is taken to be {DEFAULT_BASE:g}, as in llama.cpp"
    )
    unread = f"what {special} does to its rotation is not known here"
    texts = (stated.guess, stated.doubt, not base and taken, special and unread)
    return tuple(f"{header.path}: {text}" for text in texts if text)


def window_of(header: GGUFHeader) -> int | None:
    """The sliding window that some layers have."""
    if header.get("attention.sliding_window") is None:
        return _OWN_WINDOWS.get(header.architecture)
    return header.count("attention.sliding_window")


def has_own_windows(header: GGUFHeader) -> bool:
    """True if some layers have a window and a base of their own."""
    return architecture(header.architecture).windows == "own" and window_of(header) is not None


def base_of_windows(header: GGUFHeader) -> float | None:
    """The base of layers with a sliding window, if they have their own and it is known."""
    if not has_own_windows(header):
        return None
    usual = DEFAULT_BASE if header.architecture == "gemma3" else None
    return header.number("rope.freq_base_swa") or usual


def of_windows(header: GGUFHeader) -> RotarySchedule | None:
    """The schedule of layers with a sliding window that keep a base of their own: they are never
    scaled, only multiplied."""
    base, geometry = base_of_windows(header), geometry_of(header)
    if base is None:
        return None
    head = header.count("attention.key_length_swa") or geometry.head_dim
    turning = header.count("rope.dimension_count_swa") or min(head, geometry.rotary_dim)
    windowed = replace(geometry, base=base, head_dim=head, rotary_dim=turning)
    attention = header.number("rope.scaling.attn_factor") or 1.0
    return replace(RotarySchedule.plain(windowed), attention_scaling=attention)


def present_plan(header: GGUFHeader, model: str) -> ContextPlan:
    """The plan that llama.cpp makes this file follow."""
    geometry = geometry_of(header)
    try:
        return _plan(header, model, geometry)
    except InvalidValue as error:
        raise error.renamed(_KEYS["by_name"]).within(f"{header.path}: ") from None


def _plan(header: GGUFHeader, model: str, geometry: RotaryGeometry) -> ContextPlan:
    context = header.count("context_length") or geometry.original_length
    schedule = _scaled(header, RotarySchedule.plain(geometry), context)
    steps, original = [(context, FREQUENCIES)], geometry.original_length
    if LONG in header.tensors or SHORT in header.tensors:
        steps = [(original, SHORT), (max(context, original + 1), LONG)]
    # A guessed length is below the context that the file states, and plans start from it.
    trained = lengths_of(header).trained
    schedules = {
        FULL_ATTENTION: tuple(
            PlanStep(length, _divided_by(header, name, schedule, min(length, trained)))
            for length, name in steps
        )
    }
    if (windows := of_windows(header)) is not None:
        end = steps[-1][0]
        served = replace(windows, length=min(end, trained))
        schedules[SLIDING_ATTENTION] = (PlanStep(end, served),)
    provenance = {"source": "gguf", "model_type": header.architecture}
    return ContextPlan(model, schedules, provenance)


def _scaled(header: GGUFHeader, plain: RotarySchedule, context: int) -> RotarySchedule:
    """The schedule of the file's scaling type, before its tensors of factors."""
    kind = scaling_type(header)
    context = max(context, plain.length)  # a file may declare less than it was pretrained at
    factor, arch = factor_of(header), architecture(header.architecture)
    attention = (arch.attn_factor and header.number("rope.scaling.attn_factor")) or 1.0
    scaled = plain
    if kind in ("linear", "longrope") and factor > 1:  # which llama.cpp applies under both
        scaled = linear.schedule(plain, context, factor=factor)
    elif kind == "yarn" and factor > 1:
        fast, slow = _betas(header)
        scaled = yarn.schedule(plain, context, beta_fast=fast, beta_slow=slow, factor=factor)
    return replace(scaled, attention_scaling=scaled.attention_scaling * attention)


def _betas(header: GGUFHeader) -> tuple[float, float]:
    """The turns between which YaRN's ramp lies; most architectures take 32 and 1 anyway."""
    if not architecture(header.architecture).betas:
        return 32.0, 1.0
    fast, slow = (header.number(f"rope.scaling.yarn_beta_{end}") for end in ("fast", "slow"))
    return fast or 32.0, slow or 1.0


def _divided_by(
    header: GGUFHeader, name: str, schedule: RotarySchedule, length: int
) -> RotarySchedule:
    factors = _factors(header, name, schedule.geometry)
    same = replace(schedule, length=length)
    return same if factors is None else schedule.rescaled(factors, length)


def unplanned(header: GGUFHeader) -> str:
    """A stated key that changes the rotation as no plan does, with its value; else empty."""
    keys = ["rope.scaling.alpha", "rope.scaling.yarn_log_multiplier"]
    if architecture(header.architecture).windows not in ("none", "own") and window_of(header):
        keys += ["rope.freq_base_swa", "rope.dimension_count_swa"]
        keys += ["rope.scaling.factor"] * (scaling_type(header) == "none" and factor_of(header) > 1)
    for key in keys:
        neutral = header.number(key.removesuffix("_swa")) if key.endswith("_swa") else 0
        if (stated := header.number(key)) not in (None, neutral):
            return f"{key} = {stated:g}"
    return ""


def scaling_type(header: GGUFHeader) -> str:
    """A factor without a type is taken for a linear one."""
    return str(header.get("rope.scaling.type") or "linear")


def honours_factors(header: GGUFHeader, tensor: str) -> bool:
    """True if llama.cpp's graph of this architecture divides the frequencies by this tensor.

    One that knows both kinds loads the second, two lists, under the type longrope alone.
    """
    arch, longrope = architecture(header.architecture), scaling_type(header) == "longrope"
    return arch.honours_factors and _LOADED_AS[tensor] == arch.tensors[-1 if longrope else 0]


def _factors(header: GGUFHeader, name: str, geometry: RotaryGeometry) -> FloatArray | None:
    """λ as llama.cpp takes it: None if there is none, or if it does not look."""
    place = header.tensors.get(name)
    if place is None or not honours_factors(header, name):
        return None
    if place.kind != F32 or place.shape != (geometry.pairs,):
        return None
    factors = header.floats(name)
    return factors if np.all(np.isfinite(factors)) and np.all(factors > 0) else None
