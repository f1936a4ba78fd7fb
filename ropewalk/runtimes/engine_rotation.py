"""What the rotary modules of vLLM and SGLang compute of a setting, by the class of the model.

The modules of both have the same names. What a class passes on to its module stands in
model_classes.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.models.config import Config, ConfigReader
from ropewalk.runtimes.model_classes import BASE, SHARE, ModelClass
from ropewalk.runtimes.reading import RotaryReading, kind_of, known, scaled, with_base
from ropewalk.untrusted import real_number


def passed_on(served: ModelClass, reader: ConfigReader, rope: Config) -> Config:
    """The setting that the model's class passes on to its rotary module; refused if it fails."""
    if served.scaling == "unknown":
        raise Unsupported(
            f"chooses its class by the architecture {shortened(served.architecture)}, and what "
            "that hands to its rotary module is not known; judge it by running it there"
        )
    geometry = reader.geometry(rope, 1)
    in_part = geometry.rotary_dim < geometry.head_dim and not reader.get("qk_rope_head_dim")
    if in_part and not served.turns_parts:
        rope = {**rope, "partial_rotary_factor": 1.0}
    elif served.own_share is not None:
        rope = {**rope, "partial_rotary_factor": served.own_share}
    try:
        return served.passed_on(rope, nested=has_layer_types(reader))
    except KeyError as error:
        raise InvalidValue(
            "rope_type",
            kind_of(rope),
            f"fails in {served}, which looks for {error.args[0]}",
            "export the model for this runtime: ropewalk export",
        ) from None


def has_layer_types(reader: ConfigReader) -> bool:
    """True if its engine sees a setting for each layer type."""
    return bool(reader.family.local_base) or reader.is_nested


def yarn_keys_of(served: ModelClass) -> set[str]:
    """The keys of yarn that the engine's rotary module reads."""
    own = served.types.get("yarn")
    return {*own.must, *own.may} if own else set()


def with_nulls(reading: RotaryReading, served: ModelClass, config: Config) -> RotaryReading:
    """The reading, refused if the rotary module would compute with null."""
    try:
        settings = ConfigReader(config).layer_settings().values()
    except (InvalidValue, Unsupported):
        return reading
    why = next(filter(None, map(served.fails_on, settings)), "")
    if why and served.scaling == "passed":
        return replace(reading, layers={}, refused=reading.refused or why)
    return reading


def with_losses(reading: RotaryReading, served: ModelClass, config: Config) -> RotaryReading:
    """The reading, with what is lost between the setting and the rotary module of the class."""
    try:
        reader = ConfigReader(config)
        settings = reader.layer_settings().values()
    except (InvalidValue, Unsupported):
        return reading
    beside = {SHARE: reader.get(SHARE)}
    reading = with_nulls(reading, served, config)
    if reading.refused:
        return reading
    ropes = [{k: v for k, v in {**beside, **r}.items() if v is not None} for r in settings]
    ropes = [{**rope, "rope_type": kind_of(rope)} for rope in ropes]
    try:  # a class may read a key that the reading has left out
        for rope in ropes:
            for key in (BASE, SHARE, "factor"):
                real_number(rope.get(key, 1), key)
    except InvalidValue as error:
        return replace(reading, unread=reading.unread or str(error))
    said = (served.refusal(rope, nested=has_layer_types(reader)) for rope in ropes)
    notes = tuple(dict.fromkeys(why for why in said if why))
    return replace(reading, notes=notes, remedy=served.remedy if notes else "")


def one_base(reader: ConfigReader, rope: Config) -> Config:
    """One base for good, by the ratio of the stated length to `max_trained_positions`."""
    plain = with_base(rope, rope["rope_theta"])
    dimensions = reader.geometry(rope, 1).rotary_dim
    exponent = dimensions / (dimensions - 2)
    if isinstance(rope.get("alpha"), int | float):  # Hunyuan's: both engines, at every length
        return {**plain, "rope_theta": plain["rope_theta"] * rope["alpha"] ** exponent}
    key = "max_position_embeddings"
    stated = real_number(reader.need(key), reader.written(key))
    factor, trained = rope.get("factor"), rope.get("max_trained_positions", stated)
    if not isinstance(factor, int | float) or not isinstance(trained, int | float) or trained <= 0:
        return plain
    growth = factor * stated / trained - (factor - 1)
    return {**plain, "rope_theta": plain["rope_theta"] * growth**exponent}


def refuse_interleaved_longrope(reader: ConfigReader, rope: Config, runtime: str) -> None:
    kind = kind_of(rope)
    if kind == "longrope" and reader.geometry(rope, 1).pair_layout == "interleaved":
        raise InvalidValue(
            "rope_type", kind, f"{runtime} has it for pairs in halves only", "use linear or ntk"
        )


def times_attn_factor(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """yarn's own attention factor, multiplied by `attn_factor`."""
    if (left := rope.get("extrapolation_factor", 1)) != 1:
        raise Unsupported(
            f"extrapolation_factor = {shortened(left)} turns the fast pairs otherwise, which is "
            "not computed here; leave it out"
        )
    factor = rope.get("attn_factor")
    factor = float(factor) if isinstance(factor, int | float) else 1.0
    return tuple(
        scaled(step, step.schedule.attention_scaling * factor) for step in reader.steps(known(rope))
    )


def with_mscale(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """longrope as Phi-3's class does it: the attention factor is a key of its own for each list."""
    steps = reader.steps(known(rope))
    stated = reader.need("max_position_embeddings")
    original = steps[0].schedule.geometry.original_length
    formula = 1.0
    if stated > original:
        formula = math.sqrt(1 + math.log(stated / original) / math.log(original))
    found = []
    for name, step in zip(("short", "long")[-len(steps) :], steps, strict=True):
        key = f"{name}_mscale"
        found.append(scaled(step, real_number(rope.get(key, formula), key)))
    return tuple(found)
