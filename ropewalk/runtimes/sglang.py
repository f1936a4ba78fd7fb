"""SGLang's rules: vLLM's classes, but longrope's tables change with the positions at hand.

The longest sequence that it accepts is the first stated length, times the factor, where the setting
states no original length and is not llama3; transformers fills that length in for YaRN and longrope
(`get_context_length` of 0.5.23). So Qwen3's recipe, which states 40,960 and whose frequencies reach
4 · 32,768, is served so far only with `max_position_embeddings` raised too, as in vLLM.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ropewalk.context_plan import PlanStep
from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader, rope_type
from ropewalk.runtimes import Runtime, engines
from ropewalk.runtimes.configs import serving_config
from ropewalk.runtimes.model_classes import CHECKED, model_class, recorded
from ropewalk.runtimes.reading import Reading, by_rules, kind_of, known, number, whole, without
from ropewalk.runtimes.servers import Asking, Speech, members, plain

OLD_KEYS = "write rope_theta and rope_scaling (ropewalk export --runtime sglang does)"
_LENGTHS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length")


def read(config: Config) -> Reading:
    """dynamic keeps one base for good; yarn multiplies its own factor by `attn_factor`."""

    served = model_class(config, "sglang")
    erased = served.erased(config)
    kind = kind_of(config["rope_parameters"]) if erased else ""
    config = served.as_loaded(config)

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        if served.scaling == "transformers" or served.by:
            return reader.steps(known(rope))
        rope = engines.handed(served, reader, rope)
        engines.refuse_interleaved_longrope(reader, rope, "sglang")
        kind = kind_of(rope)
        if kind == "longrope":
            return engines.with_mscale(reader, rope)
        if kind == "yarn":
            lost = {"truncate", "mscale", "mscale_all_dim"} - engines.yarn_keys(served)
            return engines.times_attn_factor(reader, without(rope, {"attention_factor", *lost}))
        if kind == "dynamic" and rope.get("alpha"):
            return reader.steps(engines.one_base(reader, rope))
        # Of dynamic's bases one is taken for good: that of the whole extended length.
        return reader.steps(known(rope))[-1:]

    reading = by_rules("sglang", config, seen, "by the length at hand")
    found = engines.with_losses(replace(reading, limit=accepts(config)), served, config)
    if erased and kind in CHECKED:
        why = f"{erased}; it fails before, for transformers checks {kind} by a length not yet set"
        found = replace(found, layers={}, refused=f"{why}; {OLD_KEYS}")
    return replace(found, notes=(erased, *found.notes), remedy=OLD_KEYS) if erased else found


def accepts(config: Config) -> int | None:
    """The longest sequence that it accepts."""
    served = model_class(config, "sglang")
    reader = engines.stating(served.as_loaded(config))
    stated = (whole(reader.config.get(key)) for key in _LENGTHS)
    length = next((each for each in stated if each is not None), None)
    if length is None:
        length = whole(reader.get("max_position_embeddings"))
    ropes = reader.layer_settings()
    factor = 1.0
    if len(ropes) == 1 or served.old_keys is not None:  # it looks into no setting by layer type
        rope = reader.main_rope()
        if rope_type(rope) not in engines.STATED_SCALED and rope.get(ORIGINAL_LENGTH) is None:
            factor = number(rope.get("factor")) or factor
    return None if length is None else engines.times(length, factor)


def line(folder: str, length: int, overrides: Config | None) -> str:
    """The command that serves a folder."""
    extra = f" --json-model-override-args {shlex.quote(json.dumps(overrides))}" if overrides else ""
    return (
        f"python -m sglang.launch_server --model-path {shlex.quote(folder)} "
        f"--context-length {length}{extra}"
    )


# What its server says of itself, where that decides answers.
_FLAGS = (
    *("context_length", "dtype", "kv_cache_dtype", "quantization", "attention_backend"),
    *("json_model_override_args", "tp_size", "disable_radix_cache", "max_req_input_len"),
)


def _tell(server: Asking, entry: Mapping[str, Any], name: str) -> dict[str, object]:
    told = members(server.get("/get_server_info") or server.get("/server_info"))
    length = entry.get("max_model_len") or told.get("context_length")
    own = {"version": told.get("version"), "length": length}
    return {**own, **plain({key: told.get(key) for key in ("model_path", *_FLAGS)})}


RUNTIME = Runtime(
    "sglang",
    {"sglang": read},
    place=2,
    recorded=partial(recorded, "sglang"),
    cell=partial(engines.cell, "sglang", "attn_factor, short_mscale and long_mscale"),
    written=partial(serving_config, engine="sglang"),
    serve=partial(engines.serve, "sglang"),
    line=line,
    accepts=accepts,
    writer="ropewalk.exporting.vllm:to_sglang",
    # A generation_config.json may hold another.
    server=Speech("SGLang", "sglang", _tell, asked={"repetition_penalty": 1.0}),
)
