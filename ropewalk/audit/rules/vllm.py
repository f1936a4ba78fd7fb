"""vLLM's rules: those of 0.33, and those of 2025."""

from __future__ import annotations

import math
from dataclasses import replace

from ropewalk.audit.reading import (
    Reading,
    by_rules,
    kind_of,
    known,
    ropes_of,
    share,
    whole,
    without,
)
from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.exporting.features import not_passed_on
from ropewalk.models.config import Config, ConfigReader


def read(config: Config, tokenizer_limit: int | None) -> Reading:
    """longrope's table is chosen when the server starts, by `--max-model-len`."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        kind = kind_of(rope)
        if why := not_passed_on(reader, kind, rope, "vllm"):
            raise Unsupported(why)
        if kind == "dynamic":
            return reader.steps(_one_base(reader, rope))
        refuse_interleaved_longrope(reader, rope, "vllm")
        return with_mscale(reader, rope) if kind == "longrope" else reader.steps(known(rope))

    reading = by_rules("vllm", config, seen, "by the declared length")
    return replace(reading, limit=_limit(config, tokenizer_limit))


def read_2025(config: Config, tokenizer_limit: int | None) -> Reading:
    """vLLM as it was in 2025: its yarn had its own attention factor, times `attn_factor`."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        refuse_interleaved_longrope(reader, rope, "vllm-2025")
        kind = kind_of(rope)
        if kind == "longrope":
            return with_mscale(reader, rope)
        if kind == "yarn" and not reader.family.softmax_mscale:  # DeepSeek's is another class
            rope = without(rope, {"attention_factor", "mscale", "mscale_all_dim"})
            return times_attn_factor(reader, rope)
        if kind == "dynamic":
            raise Unsupported("vLLM's rules of 2025 for dynamic NTK are not known here")
        return reader.steps(known(rope))

    return by_rules("vllm-2025", config, seen, "by the declared length")


def _one_base(reader: ConfigReader, rope: Config) -> Config:
    """One base for good, by the ratio of the stated length to `max_trained_positions`."""
    plain = {"rope_theta": rope["rope_theta"], **share(rope)}
    stated = float(reader.need("max_position_embeddings"))
    factor, trained = rope.get("factor"), rope.get("max_trained_positions", stated)
    if not isinstance(factor, int | float) or not isinstance(trained, int | float) or trained <= 0:
        return plain
    growth = factor * stated / trained - (factor - 1)
    dimensions = reader.geometry(rope, 1).rotary_dim
    return {**plain, "rope_theta": plain["rope_theta"] * growth ** (dimensions / (dimensions - 2))}


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


def _limit(config: Config, tokenizer_limit: int | None) -> int | None:
    reader = ConfigReader(config)
    stated = [whole(reader.get("max_position_embeddings"))]
    stated += [whole(reader.config.get(key)) for key in _LENGTHS]
    lengths = [length for length in stated if length is not None]
    if not lengths:
        return None
    length = whole(reader.config.get("model_max_length")) or min(lengths)
    if tokenizer_limit is not None:
        length = min(length, tokenizer_limit)
    if "gemma3" in reader.model_type:  # its stated length is scaled already
        return length
    factor = 1.0
    for rope in ropes_of(config).values():
        own = rope.get("factor")
        if kind_of(rope) in ("linear", "dynamic") and isinstance(own, int | float):
            factor = float(own)
    return int(length * factor)


_LENGTHS = ("max_seq_len", "seq_length", "max_sequence_length", "max_seq_length", "seq_len")
