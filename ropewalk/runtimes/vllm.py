"""vLLM: the rules of 0.33, and those of 2025.

The longest sequence that it accepts is the shortest length that the config states, or
`model_max_length` in its place, times the factor of every rope type but llama3, longrope and YaRN
(`_get_and_verify_max_len`). Gemma 3 states its scaled length, so no factor counts there. The
tokenizer's limit counts only for models that pool over absolute positions. vLLM of 2025 took
original · factor. It refuses more, unless an environment variable allows it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader, rope_type
from ropewalk.runtimes import Runtime, engines
from ropewalk.runtimes.configs import serving_config
from ropewalk.runtimes.model_classes import RotaryType, model_class, recorded
from ropewalk.runtimes.reading import Reading, by_rules, kind_of, known, number, whole, without
from ropewalk.runtimes.servers import Asking, Speech, members, plain

_RENAMED = (("su", "longrope"), ("mrope", "default"))
_YARN_OF_2025 = RotaryType(
    ("factor", "original_max_position_embeddings"),
    ("attn_factor", "beta_fast", "beta_slow", "extrapolation_factor"),
)
_WIDE_RAMP = "under M-RoPE, its YaRN lays the ramp for 4 times the original length"
_LENGTHS = ("max_seq_len", "seq_length", "max_sequence_length", "max_seq_length", "seq_len")


def read(config: Config) -> Reading:
    """longrope's table is chosen when the server starts, by `--max-model-len`."""

    served = model_class(config, "vllm")

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        _refuse_two_types(rope)
        if served.scaling == "transformers":
            return reader.steps(known(rope))
        rope = engines.handed(served, reader, rope)
        kind = kind_of(rope)
        if kind == "dynamic":
            return reader.steps(engines.one_base(reader, rope))
        engines.refuse_interleaved_longrope(reader, rope, "vllm")
        if kind == "yarn" and not reader.family.softmax_mscale:
            own = engines.yarn_keys(served)
            rope = without(rope, {"truncate"} - own)
            if _lays_ramp_wide(reader, rope):
                rope = {**rope, ORIGINAL_LENGTH: 4 * rope[ORIGINAL_LENGTH]}
            if "attention_factor" not in own:
                return _own_yarn(reader, rope)
        return (
            engines.with_mscale(reader, rope) if kind == "longrope" else reader.steps(known(rope))
        )

    reading = by_rules("vllm", config, seen, engines.switches_of(served, "by the declared length"))
    reading = engines.with_losses(replace(reading, limit=accepts(config)), served, config)
    if reading.layers and served.scaling != "transformers":
        reader = ConfigReader(config)
        if any(_lays_ramp_wide(reader, rope) for rope in reader.layer_settings().values()):
            return replace(reading, notes=(*reading.notes, _WIDE_RAMP))
    return reading


def read_2025(config: Config) -> Reading:
    """vLLM as it was in 2025: its yarn had its own attention factor, times `attn_factor`."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        _refuse_two_types(rope)
        engines.refuse_interleaved_longrope(reader, rope, "vllm-2025")
        kind = kind_of(rope)
        if kind == "longrope":
            return engines.with_mscale(reader, rope)
        if kind == "yarn" and not reader.family.softmax_mscale:  # DeepSeek's is another class
            return _own_yarn(reader, rope)
        if kind == "dynamic":
            raise Unsupported("vLLM's rules of 2025 for dynamic NTK are not known here")
        return reader.steps(known(rope))

    served = model_class(config, "vllm")
    served = replace(served, version="of 2025", types={**served.types, "yarn": _YARN_OF_2025})
    reading = by_rules("vllm-2025", config, seen, "by the declared length")
    return engines.with_nulls(reading, served, config)


def _lays_ramp_wide(reader: ConfigReader, rope: Config) -> bool:
    """True if the ramp is laid by the length of the table, with its room for positions of videos.

    Classes since Qwen3-VL leave no such room, unless tokens of videos are pruned.
    """
    sections = kind_of(rope) == "yarn" and rope.get("mrope_section") is not None
    roomy = not reader.model_type.startswith(("qwen3_vl", "qwen3_5"))
    return sections and roomy and whole(rope.get(ORIGINAL_LENGTH)) is not None


def _refuse_two_types(rope: Config) -> None:
    """vLLM raises where the rope type has another one under its old name."""
    kind, old = rope.get("rope_type"), rope.get("type")
    if None not in (kind, old) and kind != old and (old, kind) not in _RENAMED:
        raise InvalidValue(
            "type", old, f"contradicts rope_type {shortened(kind)}", "leave out `type`"
        )


def _own_yarn(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """yarn before #56446: its own attention factor, times `attn_factor`."""
    return engines.times_attn_factor(
        reader, without(rope, {"attention_factor", "mscale", "mscale_all_dim"})
    )


def accepts(config: Config) -> int | None:
    """The longest sequence that it accepts."""
    reader = engines.stating(config)
    stated = [whole(reader.get("max_position_embeddings"))]
    stated += [whole(reader.config.get(key)) for key in _LENGTHS]
    lengths = [length for length in stated if length is not None]
    length = whole(reader.config.get("model_max_length")) or min(lengths, default=None)
    if length is None or "gemma3" in reader.model_type:
        return length
    factor = 1.0
    for rope in reader.layer_settings().values():
        if rope_type(rope) not in engines.STATED_SCALED:
            factor = number(rope.get("factor")) or factor
    return engines.times(length, factor)


def line(folder: str, length: int, overrides: Config | None) -> str:
    """The command that serves a folder."""
    extra = f" --hf-overrides {shlex.quote(json.dumps(overrides))}" if overrides else ""
    return f"vllm serve {shlex.quote(folder)} --max-model-len {length}{extra}"


def _tell(server: Asking, entry: Mapping[str, Any], name: str) -> dict[str, object]:
    version = members(server.get("/version")).get("version")
    own = {"version": version, "length": entry.get("max_model_len")}
    return {**own, **plain({key: entry.get(key) for key in ("root", "parent")})}


RUNTIME = Runtime(
    "vllm",
    {"vllm": read, "vllm-2025": read_2025},
    place=1,
    recorded=partial(recorded, "vllm"),
    cell=partial(engines.cell, "vllm", "attention_factor, short_mscale and long_mscale"),
    written=partial(serving_config, engine="vllm"),
    serve=partial(engines.serve, "vllm"),
    line=line,
    accepts=accepts,
    writer="ropewalk.exporting.vllm:export",
    server=Speech(
        "vLLM",
        "vllm",
        _tell,
        asked={"repetition_penalty": 1.0},  # a generation_config.json may hold another
        asked_for_top={"return_tokens_as_token_ids": True},
    ),
)
