"""The configs that runtimes load, the difference to a model's own, and the commands that serve it.

All of it is JSON and text, computed from a config and a plan: the exporters write it, and `plan`
shows it before there are any weights.

    longrope    vLLM and SGLang take the attention scaling from short_mscale and long_mscale only.
                SGLang looks up the wrong row for the one position at the original length, so there
                the original length stands at the target: with equal lists, nothing else depends on
                it, except the growth of queries (Ministral 3), which needs it where it is
    yarn        vLLM reads attention_factor; SGLang multiplies its own by attn_factor
    linear      both multiply max_position_embeddings by the factor, so it stays at the original;
                but not SGLang if the setting is one by layer type or states an original length,
                so there it is raised
    old keys    SGLang's own config classes of some model types erase rope_parameters
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader, rope_type, text_config
from ropewalk.models.stock_config import with_part, with_plan
from ropewalk.runtimes.model_classes import CHECKED, GROWTH_BESIDE, GROWTH_IN_ROPE, model_class

COMPUTED_HEAD_DIM = frozenset({"falcon"})
"""Model types whose config class computes `head_dim`, and fails if a file states it."""
_NO_EFFECT = {"factor": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
"""Keys that a vendor's setting may have and a new one lacks, with the values of their absence."""
_MOVED = dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), ("text_config",))
"""Model types whose published configs are flat, and the part that their class moves keys to."""
OTHER_LENGTHS = ("model_max_length", "max_seq_len", "seq_length", "max_sequence_length")
"""Keys of some configs that runtimes take for the longest sequence, next to the usual one."""
Engine = Literal["vllm", "sglang"]
ENGINES: tuple[Engine, ...] = ("vllm", "sglang")


def stock_config(config: Config, plan: ContextPlan, *, v4_keys: bool = False) -> Config:
    """The config that makes stock transformers follow the plan."""
    written = complete_config(config, plan)
    inner = text_config(written)
    reader = ConfigReader(config)
    if reader.model_type != "phimoe":  # the one family whose own code reads these
        for setting in rope_settings(inner).values():
            setting.pop("short_mscale", None)
            setting.pop("long_mscale", None)
    if v4_keys:
        _to_v4_keys(inner, reader)
    return written


def complete_config(config: Config, plan: ContextPlan) -> Config:
    """The plan's config with all that some family or runtime looks for in a second place."""
    written = with_plan(config, plan)
    written.pop("auto_map", None)  # the type is a stock one: no code of a folder is needed
    inner = text_config(written)
    reader = ConfigReader(config)
    single = rope_settings(inner).get("")
    if single is not None and "original_max_position_embeddings" in single:
        original = single["original_max_position_embeddings"]
        inner["original_max_position_embeddings"] = original
    _raise_lengths(inner)
    computed = reader.get("qk_rope_head_dim") or reader.model_type in COMPUTED_HEAD_DIM
    if inner.get("head_dim") is None and not computed:
        # Some code takes this attribute for granted, some divides, and not always evenly.
        inner["head_dim"] = next(iter(plan.schedules.values()))[-1].schedule.geometry.head_dim
    return written


def _raise_lengths(inner: Config) -> None:
    """No other key may state less than `max_position_embeddings`."""
    for key in OTHER_LENGTHS:
        if isinstance(inner.get(key), int):
            inner[key] = max(inner[key], inner["max_position_embeddings"])


def rope_settings(inner: Config) -> dict[str, dict[str, Any]]:
    """The setting of every layer type, to be changed in place; a single one serves all (``)."""
    rope = inner["rope_parameters"]
    nested = {name: value for name, value in rope.items() if isinstance(value, dict)}
    return nested or {"": rope}


# What transformers 4 called them elsewhere: rope_theta, partial_rotary_factor.
_V4_NAMES = {"gpt_neox": ("rotary_emb_base", "rotary_pct")}


def _to_v4_keys(inner: Config, reader: ConfigReader) -> None:
    """`rope_theta` and `rope_scaling`, as transformers 4 and what grew around it read them."""
    base, share = _V4_NAMES.get(reader.model_type, ("rope_theta", "partial_rotary_factor"))
    ropes, own = rope_settings(inner), reader.family
    scaling = dict(ropes.pop("" if "" in ropes else FULL_ATTENTION))
    # transformers 5 takes `rope_theta` for full attention, and its default for windows (OLMo 3).
    plain = {"rope_type": "default", "rope_theta": own.defaults.get("rope_theta")}
    one_base = own.local_base == base and scaling["rope_theta"] == plain["rope_theta"]
    if ropes and not (one_base and ropes == {SLIDING_ATTENTION: plain}):
        raise Unsupported(
            "v4 keys: this model has a setting for every layer type, which they cannot hold; write "
            "the keys of version 5"
        )
    del inner["rope_parameters"]
    inner[base] = scaling.pop("rope_theta")
    if "partial_rotary_factor" in scaling:
        inner[share] = scaling.pop("partial_rotary_factor")
    # `type` is the older name, and the only one that some classes of mlx-lm and Ollama read.
    scaling["type"] = scaling["rope_type"]
    inner["rope_scaling"] = None if set(scaling) == {"rope_type", "type"} else scaling


def serving_config(config: Config, plan: ContextPlan, *, engine: str) -> Config:
    """The config that makes the engine follow the plan."""
    written = complete_config(config, plan)
    inner, served, reader = text_config(written), model_class(config, engine), ConfigReader(config)
    length = inner["max_position_embeddings"]
    for layer_type, setting in rope_settings(inner).items():
        if layer_type and layer_type not in plan.schedules:
            continue  # no layer is of this type
        schedule = plan.longest(layer_type or next(iter(plan.schedules)))
        kind = setting["rope_type"]
        if kind == "longrope" and engine == "sglang" and not loses_a_position(setting):
            setting["original_max_position_embeddings"] = plan.target_length
            setting["factor"] = 1.0  # which reaches from there to the target
            if "original_max_position_embeddings" in inner:
                inner["original_max_position_embeddings"] = plan.target_length
        if kind == "yarn" and engine == "sglang":
            setting["attn_factor"] = schedule.attention_scaling / _sglang_yarn_scaling(setting)
        unseen = served.old_keys is None and bool(layer_type or ORIGINAL_LENGTH in setting)
        unseen &= engine == "sglang" and not reader.family.length_is_scaled
        if kind == "linear" and unseen:
            setting.setdefault(ORIGINAL_LENGTH, schedule.geometry.original_length)
            length = plan.target_length
        beta = setting.get(GROWTH_IN_ROPE)
        if beta is not None and served.growth_key == GROWTH_BESIDE:
            original = setting.get("original_max_position_embeddings")
            inner[GROWTH_BESIDE] = {
                "beta": beta,
                "original_max_position_embeddings": original,
            }
        if not layer_type:
            inner |= served.written_beside(setting)
    if served.old_keys is not None:
        _to_v4_keys(inner, reader)
    inner["max_position_embeddings"] = length
    return written


def loses_a_position(setting: Mapping[str, object]) -> bool:
    """True if SGLang, when decoding, rotates the token at the original length as the first one.

    Its longrope does so unless the original length stands at the target, and the steps in which
    queries grow are of that length too, in transformers and beside rope_parameters in SGLang.
    """
    return setting.get("rope_type") == "longrope" and bool(setting.get(GROWTH_IN_ROPE))


def _sglang_yarn_scaling(setting: dict[str, Any]) -> float:
    """The factor of cos and sin in SGLang before `attn_factor`."""

    def growth(mscale: float) -> float:
        return 0.1 * mscale * math.log(setting["factor"]) + 1.0 if setting["factor"] > 1 else 1.0

    if setting.get("mscale") is not None and setting.get("mscale_all_dim") is not None:
        return growth(setting["mscale"]) / growth(setting["mscale_all_dim"])
    return growth(1.0)


# With one window for all layers; the value where a config states none, as the config class has it.
_ONE_WINDOW = {"mistral": 4096, "mixtral": None, "phi3": None, "phimoe": None, "starcoder2": None}


def window_everywhere(config: Config) -> int | None:
    """The sliding window that every layer has; None if some layer sees further."""
    inner, kind = text_config(config), ConfigReader(config).model_type
    window = inner.get("sliding_window", _ONE_WINDOW.get(kind))
    if not isinstance(window, int) or inner.get("use_sliding_window") is False:
        return None
    types = inner.get("layer_types")
    if isinstance(types, list) and types:
        return window if set(types) == {SLIDING_ATTENTION} else None
    if kind.startswith("qwen"):  # the first layers see all; by its class, without the switch too
        below = inner.get("max_window_layers", 28)
        return window if inner.get("use_sliding_window") and below == 0 else None
    return window if kind in _ONE_WINDOW else None


def with_length(config: Config, length: int) -> Config:
    """The config with another stated length, and nothing else."""
    reader = ConfigReader(config)
    key = reader.written("max_position_embeddings").removeprefix(reader.prefix)
    inner = {"max_position_embeddings": length, **reader.config, key: length}
    _raise_lengths(inner)
    return with_part(config, reader.path, inner)


def changes(before: Config, after: Config) -> Config:
    """The keys that a plan changes, in the part for text where there is one."""
    own, planned = text_config(before), text_config(after)
    return {key: value for key, value in planned.items() if own.get(key) != value}


def override(before: Config, after: Config, engine: str) -> Config | None:
    """The same, as the engine takes them on its command line; None if they would not arrive.

    vLLM replaces a setting as a whole, so it is written with all its keys. SGLang puts the keys of
    a setting over those that are there. Of a part it replaces the members, but those of a part of
    a part by a plain dict, on which it fails; and some of its models read them next to the part,
    where it copied them before.
    """
    reader, changed = ConfigReader(after), changes(before, after)
    path = reader.path or _MOVED.get(reader.model_type, ())
    setting, there = changed.get(reader.rope_key) or {}, ConfigReader(before).main_rope()
    if engine == "sglang" and "rope_type" in setting:
        none = {key: value for key, value in _NO_EFFECT.items() if key in there}
        changed[reader.rope_key] = {**none, **setting}
        scaled = ORIGINAL_LENGTH in there or rope_type(there) in CHECKED
        unseen = scaled and not path and ORIGINAL_LENGTH not in setting
        if setting["rope_type"] == "linear" and unseen:
            length = round(reader.need("max_position_embeddings") * setting["factor"])
            changed["max_position_embeddings"] = length
    if engine == "sglang" and len(path) > 1:
        return None
    beside = changed if engine == "sglang" else {}
    for part in reversed(path if changed else ()):
        changed = {part: changed}
    return {**beside, **changed}
