"""The configs that runtimes load, and the difference to a model's own.

All of it is JSON, computed from a config and a plan: the exporters write it, and `plan` shows it
before there are any weights. What single runtimes need otherwise stands in their own files.
"""

from __future__ import annotations

from typing import Any

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.models.config import Config, ConfigReader, text_config
from ropewalk.models.stock_config import with_part, with_plan

COMPUTED_HEAD_DIM = frozenset({"falcon"})
"""Model types whose config class computes `head_dim`, and fails if a file states it."""
OTHER_LENGTHS = ("model_max_length", "max_seq_len", "seq_length", "max_sequence_length")
"""Keys of some configs that runtimes take for the longest sequence, next to the usual one."""


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
        to_v4_keys(inner, reader)
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


def to_v4_keys(inner: Config, reader: ConfigReader) -> None:
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
