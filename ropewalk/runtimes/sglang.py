"""SGLang's rules: vLLM's classes, but longrope's tables change with the positions at hand.

The longest sequence that it accepts is the first stated length, times the factor, where the setting
states no original length and is not llama3; transformers fills that length in for YaRN and longrope
(`get_context_length` of 0.5.23). So Qwen3's recipe, which states 40,960 and whose frequencies reach
4 · 32,768, is served so far only with `max_position_embeddings` raised too, as in vLLM.

An export writes for it, other than for transformers:

    longrope    it looks up the wrong row for the one position at the original length, so there the
                original length stands at the target: with equal lists, nothing else depends on it,
                except the growth of queries (Ministral 3), which needs it where it is
    yarn        it multiplies an attention factor of its own by attn_factor
    linear      it multiplies max_position_embeddings by the factor, but not if the setting is one
                by layer type or states an original length, so there that is raised
    old keys    its own config classes of some model types erase rope_parameters
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.models.config import ORIGINAL_LENGTH, STATED_SCALED, Config, ConfigReader, rope_type
from ropewalk.models.stock_config import changes, rope_settings
from ropewalk.runtimes.engine import (
    ServingEngine,
    in_parts,
    one_base,
    passed_on,
    path_of,
    refuse_interleaved_longrope,
    stating,
    times,
    times_attn_factor,
    with_losses,
    with_mscale,
    yarn_keys_of,
)
from ropewalk.runtimes.model_classes import CHECKED, GROWTH_IN_ROPE
from ropewalk.runtimes.reading import (
    RotaryReading,
    by_rules,
    kind_of,
    known,
    number,
    whole,
    without,
)
from ropewalk.runtimes.runtime import Connection, Dialect, members, plain

OLD_KEYS = "write rope_theta and rope_scaling (ropewalk export --runtime sglang does)"
ONE_POSITION = (
    "SGLang, when decoding, rotates the token at the original length as the first one: where "
    "queries grow with their position, its longrope cannot avoid that; plan with ntk, linear or "
    "yarn and --from-original"
)
_LENGTHS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length")
_NO_EFFECT = {"factor": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
"""Keys that a vendor's setting may have and a new one lacks, with the values of their absence."""
# What its server says of itself, where that decides answers.
_FLAGS = (
    *("context_length", "dtype", "kv_cache_dtype", "quantization", "attention_backend"),
    *("json_model_override_args", "tp_size", "disable_radix_cache", "max_req_input_len"),
)


def _described(server: Connection, entry: Mapping[str, Any], name: str) -> dict[str, object]:
    info = members(server.get("/get_server_info") or server.get("/server_info"))
    length = entry.get("max_model_len") or info.get("context_length")
    described = {"version": info.get("version"), "length": length}
    return {**described, **plain({key: info.get(key) for key in ("model_path", *_FLAGS)})}


class Sglang(ServingEngine):
    """SGLang: dynamic keeps one base for good; yarn multiplies its own factor by `attn_factor`."""

    name = "sglang"
    place = 2
    attention_keys = "attn_factor, short_mscale and long_mscale"
    # A generation_config.json may hold another penalty.
    dialect = Dialect("SGLang", "sglang", _described, asked={"repetition_penalty": 1.0})

    def read(self, config: Config) -> RotaryReading:
        served = self.served(config)
        erased = served.erased(config)
        kind = kind_of(config["rope_parameters"]) if erased else ""
        config = served.as_loaded(config)

        def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
            if served.scaling == "transformers" or served.by:
                return reader.steps(known(rope))
            rope = passed_on(served, reader, rope)
            refuse_interleaved_longrope(reader, rope, self.name)
            kind = kind_of(rope)
            if kind == "longrope":
                return with_mscale(reader, rope)
            if kind == "yarn":
                lost = {"truncate", "mscale", "mscale_all_dim"} - yarn_keys_of(served)
                return times_attn_factor(reader, without(rope, {"attention_factor", *lost}))
            if kind == "dynamic" and rope.get("alpha"):
                return reader.steps(one_base(reader, rope))
            # Of dynamic's bases one is taken for good: that of the whole extended length.
            return reader.steps(known(rope))[-1:]

        reading = by_rules(self.name, config, seen, "by the length at hand")
        result = with_losses(replace(reading, limit=self.accepts(config)), served, config)
        if erased and kind in CHECKED:
            why = f"it fails before, for transformers checks {kind} by a length not yet set"
            result = replace(result, layers={}, refused=f"{erased}; {why}; {OLD_KEYS}")
        return replace(result, notes=(erased, *result.notes), remedy=OLD_KEYS) if erased else result

    def accepts(self, config: Config) -> int | None:
        served = self.served(config)
        reader = stating(served.as_loaded(config))
        stated = (whole(reader.config.get(key)) for key in _LENGTHS)
        length = next((each for each in stated if each is not None), None)
        if length is None:
            length = whole(reader.get("max_position_embeddings"))
        ropes = reader.layer_settings()
        factor = 1.0
        if len(ropes) == 1 or served.old_keys is not None:  # it looks into no setting by layer type
            rope = reader.main_rope()
            if rope_type(rope) not in STATED_SCALED and rope.get(ORIGINAL_LENGTH) is None:
                factor = number(rope.get("factor")) or factor
        return None if length is None else times(length, factor)

    def command(self, model: str, length: int, overrides: Config | None = None) -> str:
        written = shlex.quote(json.dumps(overrides))
        extra = f" --json-model-override-args {written}" if overrides else ""
        return (
            f"python -m sglang.launch_server --model-path {shlex.quote(model)} "
            f"--context-length {length}{extra}"
        )

    def adapt(self, inner: Config, config: Config, plan: ContextPlan) -> None:
        target, erased = plan.target_length, self.served(config).old_keys is not None
        for layer_type, setting in rope_settings(inner).items():
            if layer_type and layer_type not in plan.schedules:
                continue  # no layer is of this type
            schedule = plan.longest(layer_type or next(iter(plan.schedules)))
            kind = setting["rope_type"]
            if kind == "longrope" and not loses_a_position(setting):
                setting[ORIGINAL_LENGTH] = target
                setting["factor"] = 1.0  # which reaches from there to the target
                if ORIGINAL_LENGTH in inner:
                    inner[ORIGINAL_LENGTH] = target
            if kind == "yarn":
                setting["attn_factor"] = schedule.attention_scaling / _own_yarn_scaling(setting)
            unseen = bool(layer_type or ORIGINAL_LENGTH in setting) and not erased
            if kind == "linear" and unseen and not ConfigReader(config).family.length_is_scaled:
                setting.setdefault(ORIGINAL_LENGTH, schedule.geometry.original_length)
                inner["max_position_embeddings"] = target

    def overrides(self, before: Config, after: Config) -> Config | None:
        """The changes of a config on its command line; None if they would not arrive.

        It puts the keys of a setting over those that are there. Of a part it replaces the members,
        but those of a part of a part by a plain dict, on which it fails; and some of its models
        read them next to the part, where it copied them before.
        """
        reader, changed, path = ConfigReader(after), changes(before, after), path_of(after)
        setting, there = changed.get(reader.rope_key) or {}, ConfigReader(before).main_rope()
        if "rope_type" in setting:
            none = {key: value for key, value in _NO_EFFECT.items() if key in there}
            changed[reader.rope_key] = {**none, **setting}
            scaled = ORIGINAL_LENGTH in there or rope_type(there) in CHECKED
            unseen = scaled and not path and ORIGINAL_LENGTH not in setting
            if setting["rope_type"] == "linear" and unseen:
                length = round(reader.need("max_position_embeddings") * setting["factor"])
                changed["max_position_embeddings"] = length
        return None if len(path) > 1 else {**changed, **in_parts(changed, path)}

    def caveats(self, followed: ContextPlan, written: Config) -> tuple[str, ...]:
        ropes = ConfigReader(written).layer_settings().values()
        one = (ONE_POSITION,) if any(map(loses_a_position, ropes)) else ()
        return (*super().caveats(followed, written), *one)


def loses_a_position(setting: Mapping[str, object]) -> bool:
    """True if it, when decoding, rotates the token at the original length as the first one.

    Its longrope does so unless the original length stands at the target, and the steps in which
    queries grow are of that length too, in transformers and beside rope_parameters in SGLang.
    """
    return setting.get("rope_type") == "longrope" and bool(setting.get(GROWTH_IN_ROPE))


def _own_yarn_scaling(setting: dict[str, Any]) -> float:
    """The factor of cos and sin before `attn_factor`."""

    def growth(mscale: float) -> float:
        return 0.1 * mscale * math.log(setting["factor"]) + 1.0 if setting["factor"] > 1 else 1.0

    if setting.get("mscale") is not None and setting.get("mscale_all_dim") is not None:
        return growth(setting["mscale"]) / growth(setting["mscale_all_dim"])
    return growth(1.0)


RUNTIMES = (Sglang(),)
