"""vLLM's rules: those of 0.33, and those of 2025."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.audit.reading import (
    Reading,
    Switch,
    by_rules,
    kind_of,
    known,
    share,
    without,
)
from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.exporting.accepted import by_vllm
from ropewalk.exporting.model_classes import ModelClass, model_class
from ropewalk.models.config import Config, ConfigReader
from ropewalk.untrusted import real_number


def read(config: Config, table: Mapping[str, Any] | None = None) -> Reading:
    """longrope's table is chosen when the server starts, by `--max-model-len`.

    `table`: of another version, read in its wheel (wheels/facts.py).
    """

    served = model_class(config, "vllm", table)

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        if served.scaling == "transformers":
            return reader.steps(known(rope))
        rope = handed(served, reader, rope)
        kind = kind_of(rope)
        if kind == "dynamic":
            return reader.steps(one_base(reader, rope))
        refuse_interleaved_longrope(reader, rope, "vllm")
        if kind == "yarn" and not reader.family.softmax_mscale:
            own = yarn_keys(served)
            rope = without(rope, {"truncate"} - own)
            if "attention_factor" not in own:
                return _own_yarn(reader, rope)
        return with_mscale(reader, rope) if kind == "longrope" else reader.steps(known(rope))

    reading = by_rules("vllm", config, seen, switches_of(served, "by the declared length"))
    notes = said_of(served, config)
    remedy = served.remedy if notes else ""
    return replace(reading, limit=by_vllm(config), notes=notes, remedy=remedy)


def read_2025(config: Config) -> Reading:
    """vLLM as it was in 2025: its yarn had its own attention factor, times `attn_factor`."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        refuse_interleaved_longrope(reader, rope, "vllm-2025")
        kind = kind_of(rope)
        if kind == "longrope":
            return with_mscale(reader, rope)
        if kind == "yarn" and not reader.family.softmax_mscale:  # DeepSeek's is another class
            return _own_yarn(reader, rope)
        if kind == "dynamic":
            raise Unsupported("vLLM's rules of 2025 for dynamic NTK are not known here")
        return reader.steps(known(rope))

    return by_rules("vllm-2025", config, seen, "by the declared length")


def yarn_keys(served: ModelClass) -> set[str]:
    """The keys of yarn that the engine's rotary module reads."""
    own = served.types.get("yarn")
    return {*own.must, *own.may} if own else set()


def _own_yarn(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """yarn before #56446: its own attention factor, times `attn_factor`."""
    return times_attn_factor(
        reader, without(rope, {"attention_factor", "mscale", "mscale_all_dim"})
    )


def handed(served: ModelClass, reader: ConfigReader, rope: Config) -> Config:
    """What the model's class hands to its rotary module; refused where it fails on the setting."""
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
        return served.handed(rope, nested=by_layer(reader))
    except KeyError as error:
        raise InvalidValue(
            "rope_type",
            kind_of(rope),
            f"fails in {served}, which looks for {error.args[0]}",
            "export the model for this runtime: ropewalk export",
        ) from None


def by_layer(reader: ConfigReader) -> bool:
    """Whether its engine sees a setting for each layer type."""
    return bool(reader.family.local_base) or reader.is_nested


def said_of(served: ModelClass, config: Config) -> tuple[str, ...]:
    """What is lost between the setting and the rotary module of the model's class."""
    try:
        reader = ConfigReader(config)
        settings = reader.layer_settings().values()
    except (InvalidValue, Unsupported):
        return ()
    ropes = [{key: value for key, value in r.items() if value is not None} for r in settings]
    ropes = [{**rope, "rope_type": kind_of(rope)} for rope in ropes]
    said = (served.refusal(rope, nested=by_layer(reader)) for rope in ropes)
    return tuple(dict.fromkeys(why for why in said if why))


def switches_of(served: ModelClass, own: Switch) -> Switch:
    """When longrope's lists change: as the engine does it, or as transformers' code does."""
    return "by the length at hand" if served.scaling == "transformers" else own


def one_base(reader: ConfigReader, rope: Config) -> Config:
    """One base for good, by the ratio of the stated length to `max_trained_positions`."""
    plain = {"rope_theta": rope["rope_theta"], **share(rope)}
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
    """yarn's own attention factor, multiplied by what `attn_factor` says."""
    factor = rope.get("attn_factor")
    factor = float(factor) if isinstance(factor, int | float) else 1.0
    return tuple(
        replace(
            step,
            schedule=replace(
                step.schedule, attention_scaling=step.schedule.attention_scaling * factor
            ),
        )
        for step in reader.steps(known(rope))
    )


def with_mscale(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """longrope as Phi-3's class does it: the attention factor is a key of its own for each list."""
    steps = reader.steps(known(rope))
    stated = reader.need("max_position_embeddings")
    original = steps[0].schedule.geometry.original_length
    formula = 1.0
    if stated > original:
        formula = math.sqrt(1 + math.log(stated / original) / math.log(original))
    scaled = []
    for name, step in zip(("short", "long")[-len(steps) :], steps, strict=True):
        scaling = rope.get(f"{name}_mscale")
        scaling = formula if scaling is None else float(scaling)
        scaled.append(replace(step, schedule=replace(step.schedule, attention_scaling=scaling)))
    return tuple(scaled)
