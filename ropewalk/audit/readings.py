"""What each runtime makes of a config: a written-down reading of its rules, one function a runtime.

A runtime differs from transformers in which keys it reads, not in the formulas behind them. So a
reading leaves out of a setting what its runtime does not see, puts in what it would fill in, and
hands the rest to the reader of transformers' own configs (models/config.py). None of this is run:
`source` says so. What transformers itself does is measured instead (stock_rotary.py).

The rules are those of vLLM 0.33, SGLang 0.5.23 and llama.cpp, read in their sources; those of the
first two are held against the rotary modules of the released wheels by tests/external/readings.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.gguf.rotation import LLAMA_CPP_FACTORS
from ropewalk.models.config import KNOWN_KEYS, Config, ConfigReader
from ropewalk.schedule import FloatArray, RotarySchedule

BY_ITS_RULES = "by its rules, not run"
MEASURED = "measured"

Switch = Literal["never", "by the length at hand", "by the declared length"]


@dataclass(frozen=True, eq=False)
class Effective:
    """What cos and sin are made of."""

    inverse_frequencies: FloatArray
    attention_scaling: float

    @classmethod
    def of(cls, schedule: RotarySchedule) -> Effective:
        return cls(schedule.inverse_frequencies, schedule.attention_scaling)


@dataclass(frozen=True, eq=False)
class Reading:
    """What one runtime does with a folder or a file."""

    runtime: str
    source: str
    """`measured`, or that it follows from written-down rules."""
    steps: Mapping[str, tuple[tuple[int, Effective], ...]] = field(default_factory=dict)
    """By layer type, what serves sequences up to which length; the last serves all above too."""
    switches: Switch = "never"
    """How it chooses among the steps."""
    limit: int | None = None
    """The longest sequence that it accepts unless told otherwise; None: it never refuses one."""
    refused: str | None = None
    """Why it would not load this."""
    unread: str | None = None
    """Why we cannot say what it does."""
    notes: tuple[str, ...] = ()

    def at(self, length: int, layer_type: str) -> Effective | None:
        steps = self.steps.get(layer_type, ())
        fitting = (effective for end, effective in steps if length <= end)
        return next(fitting, steps[-1][1] if steps else None)


def vllm(config: Config, tokenizer_limit: int | None) -> Reading:
    """vLLM: longrope's table is chosen when the server starts, by `--max-model-len`."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        kind = kind_of(rope)
        if kind == "dynamic":
            return reader.steps(_dynamic_of_vllm(reader, rope))
        _refuse_what_the_servers_do(reader, rope, "vllm")
        return _with_mscale(reader, rope) if kind == "longrope" else reader.steps(_known(rope))

    reading = _reading("vllm", config, seen, "by the declared length")
    return replace(reading, limit=_vllm_limit(config, tokenizer_limit))


def vllm_2025(config: Config, tokenizer_limit: int | None) -> Reading:
    """vLLM as it was in 2025: its yarn had its own attention factor, times `attn_factor`."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        _refuse_what_the_servers_do(reader, rope, "vllm-2025")
        kind = kind_of(rope)
        if kind == "longrope":
            return _with_mscale(reader, rope)
        if kind == "yarn" and not reader.family.softmax_mscale:  # DeepSeek's is another class
            rope = _without(rope, {"attention_factor", "mscale", "mscale_all_dim"})
            return _times_attn_factor(reader, rope)
        if kind == "dynamic":
            raise Unsupported("what vLLM made of dynamic NTK in 2025 is not written down here")
        return reader.steps(_known(rope))

    return _reading("vllm-2025", config, seen, "by the declared length")


def sglang(config: Config, tokenizer_limit: int | None) -> Reading:
    """SGLang: vLLM's classes, but longrope's tables change with the positions at hand."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        _refuse_what_the_servers_do(reader, rope, "sglang")
        kind = kind_of(rope)
        if kind == "longrope":
            return _with_mscale(reader, rope)
        if kind == "yarn":
            return _times_attn_factor(reader, _without(rope, {"attention_factor"}))
        # Of dynamic's bases one is taken for good: that of the whole extended length.
        return reader.steps(_known(rope))[-1:]

    reading = _reading("sglang", config, seen, "by the length at hand")
    return replace(reading, limit=_sglang_limit(config))


def llama_cpp(config: Config, tokenizer_limit: int | None) -> Reading:
    """llama.cpp, after its own converter has made a GGUF of the folder."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        kind = kind_of(rope)
        if reader.family.softmax_mscale:
            raise Unsupported(
                "how llama.cpp treats DeepSeek's two mscales is not written down here"
            )
        takes_factors = reader.model_type in LLAMA_CPP_FACTORS
        if kind == "longrope" and reader.model_type not in ("phi3", "phimoe", "minicpm"):
            rope = {"rope_theta": rope["rope_theta"], **_share(rope)}  # the converter drops them
        elif kind == "yarn":
            rope = _without(rope, {"attention_factor", "mscale", "mscale_all_dim", "truncate"})
        elif kind == "llama3" and takes_factors:
            top = reader.config.get("original_max_position_embeddings")
            rope = {**rope, "original_max_position_embeddings": top or 8192}
        elif kind in ("llama3", "dynamic"):
            rope = {"rope_theta": rope["rope_theta"], **_share(rope)}
        return reader.steps(_known(rope))

    reading = _reading("llama.cpp", config, seen, "by the declared length")
    stated = ConfigReader(config).get("max_position_embeddings")
    return replace(reading, limit=stated if isinstance(stated, int) else None)


def transformers_4(config: Config, tokenizer_limit: int | None) -> Reading:
    """transformers 4 and all that reads its keys: `rope_theta` and `rope_scaling`, nothing else."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        config = {**config, "text_config": _without(dict(inner), {"rope_parameters"})}
    config = _without(config, {"rope_parameters"})
    return _reading(
        "transformers-4",
        config,
        lambda reader, rope: reader.steps(_known(rope)),
        "by the length at hand",
    )


Rules = Callable[[Config, int | None], Reading]
BY_RULES: Mapping[str, Rules] = {
    "vllm": vllm,
    "vllm-2025": vllm_2025,
    "sglang": sglang,
    "llama.cpp": llama_cpp,
    "transformers-4": transformers_4,
}


def _reading(
    runtime: str,
    config: Config,
    seen: Callable[[ConfigReader, Config], tuple[PlanStep, ...]],
    switches: Switch,
) -> Reading:
    steps = {}
    try:
        reader = ConfigReader(config)
        for layer_type, rope in reader.layer_settings().items():
            own = seen(reader, {key: value for key, value in rope.items() if value is not None})
            steps[layer_type] = tuple(
                (step.up_to_length, Effective.of(step.schedule)) for step in own
            )
    except Unsupported as error:
        return Reading(runtime, BY_ITS_RULES, unread=str(error))
    except InvalidValue as error:
        return Reading(runtime, BY_ITS_RULES, refused=str(error))
    changes = any(len(own) > 1 for own in steps.values())
    return Reading(runtime, BY_ITS_RULES, steps, switches if changes else "never")


def _refuse_what_the_servers_do(reader: ConfigReader, rope: Config, runtime: str) -> None:
    kind = kind_of(rope)
    if kind == "longrope" and reader.geometry(rope, 1).pair_layout == "interleaved":
        raise InvalidValue(
            "rope_type", kind, f"{runtime} has it for pairs in halves only", "use linear or ntk"
        )


def _times_attn_factor(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
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
        for step in reader.steps(_known(rope))
    )


def _dynamic_of_vllm(reader: ConfigReader, rope: Config) -> Config:
    """One base for good, by the ratio of the stated length to `max_trained_positions`."""
    plain = {"rope_theta": rope["rope_theta"], **_share(rope)}
    stated = float(reader.need("max_position_embeddings"))
    factor, trained = rope.get("factor"), rope.get("max_trained_positions", stated)
    if not isinstance(factor, int | float) or not isinstance(trained, int | float) or trained <= 0:
        return plain
    growth = factor * stated / trained - (factor - 1)
    dimensions = reader.geometry(rope, 1).rotary_dim
    return {**plain, "rope_theta": plain["rope_theta"] * growth ** (dimensions / (dimensions - 2))}


def _with_mscale(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """longrope as Phi-3's class does it: the attention factor is a key of its own for each list."""
    steps = reader.steps(_known(rope))
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


def _vllm_limit(config: Config, tokenizer_limit: int | None) -> int | None:
    reader = ConfigReader(config)
    stated = [_whole(reader.get("max_position_embeddings"))]
    stated += [_whole(reader.config.get(key)) for key in _VLLM_LENGTHS]
    lengths = [length for length in stated if length is not None]
    if not lengths:
        return None
    length = _whole(reader.config.get("model_max_length")) or min(lengths)
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


_VLLM_LENGTHS = ("max_seq_len", "seq_length", "max_sequence_length", "max_seq_length", "seq_len")


def _sglang_limit(config: Config) -> int | None:
    reader = ConfigReader(config)
    ropes = ropes_of(config)
    factor = 1.0
    if len(ropes) == 1:  # it does not look into settings by layer type
        (rope,) = ropes.values()
        own = rope.get("factor")
        scaled = "original_max_position_embeddings" in rope
        if not scaled and kind_of(rope) in ("linear", "dynamic") and isinstance(own, int | float):
            factor = float(own)
    for key in ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length"):
        if (length := _whole(reader.config.get(key))) is not None:
            return int(length * factor)
    length = _whole(reader.get("max_position_embeddings"))
    return None if length is None else int(length * factor)


def ropes_of(config: Config) -> dict[str, Config]:
    return ConfigReader(config).layer_settings()


def kind_of(rope: Mapping[str, object]) -> str:
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    return "longrope" if kind == "su" else kind


def _share(rope: Config) -> Config:
    return {key: rope[key] for key in ("partial_rotary_factor",) if key in rope}


def _known(rope: Config) -> Config:
    """Without keys of which transformers' reader knows nothing."""
    return {key: value for key, value in rope.items() if key in KNOWN_KEYS}


def _without(rope: Config, keys: set[str]) -> Config:
    return {key: value for key, value in rope.items() if key not in keys}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
