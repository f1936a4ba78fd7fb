"""A plan, written as a stock config of transformers v5, and the configs that other runtimes load.

Native rope types where one says exactly this plan, another base where that says it all, and any
other factors as `longrope` with equal lists. What stock keys cannot say is refused by name.

All of it is JSON, computed from a config and a plan: the exporters write it, and `plan` shows it
before there are any weights. What single runtimes need otherwise stands in their own files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep, ladder
from ropewalk.errors import Unsupported
from ropewalk.models.config import Config, ConfigReader
from ropewalk.models.config.keys import (
    ALIASES,
    CARRIED_KEYS,
    ORIGINAL_LENGTH,
    QUERY_GROWTH,
    load_config,
    rope_type,
    text_config,
)
from ropewalk.models.lengths import Stated, three_lengths
from ropewalk.models.recipes import RECIPE
from ropewalk.scaling import dynamic_ntk, rebuild
from ropewalk.schedule import RotaryGeometry, RotarySchedule


def with_plan(source: object, plan: ContextPlan) -> Config:
    """A copy of the config that makes stock transformers (v5) follow the plan.

    Schedules that a native rope type expresses exactly get that type, all others `longrope` with
    two equal lists. A schedule that no stock key can express is refused by name.
    """
    config = load_config(source)
    reader = ConfigReader(config)
    if reader.family.own_code:
        raise Unsupported(
            f"models of type {reader.model_type!r} bring their own code, which reads none of the "
            "stock keys, so no stock config can express a plan for them"
        )
    layers = reader.layer_settings()
    plan.check_layer_types(layers)
    written = {
        layer: _written(reader, plan.steps(layer), layer, rope) for layer, rope in layers.items()
    }
    ropes = {layer: rope for layer, (rope, _) in written.items()}
    # Sliding-window layers, which keep to their window, have no say in the stated length.
    rope, length = written[FULL_ATTENTION if FULL_ATTENTION in written else next(iter(written))]
    if rope["rope_type"] == "yarn" and not plan.provenance.get(RECIPE):
        # exllamav3 and transformers up to 4.55 take the factor from the two lengths. Where a vendor
        # documents another target, that stays.
        length = max(length, math.floor(rope["factor"] * rope[ORIGINAL_LENGTH]))
    inner = dict(reader.config)
    local_base = reader.family.local_base or ""
    stale = ("rope_scaling", "rope_parameters", *ALIASES["rope_theta"], local_base)
    for key in stale:
        inner.pop(key, None)
    every = reader.layer_settings(unused=True)
    of_class = reader.family.rope
    by_layer = any(isinstance(own, Mapping) for own in of_class.values())
    resting = {layer: None for layer, own in of_class.items() if by_layer and own is None}
    nested = bool(local_base) or by_layer or len(every) > 1
    for setting in every.values():
        del setting["layer_type"]
        setting["rope_type"] = rope_type(setting)
    # Runtimes look up those of no layer too.
    inner["rope_parameters"] = resting | every | ropes if nested else next(iter(ropes.values()))
    own_name = reader.written("max_position_embeddings").removeprefix(reader.prefix)
    inner["max_position_embeddings"] = inner[own_name] = length
    if isinstance(bases := inner.get("layer_rope_theta"), list):  # it stands above rope_theta
        [rope] = ropes.values()
        inner["layer_rope_theta"] = [rope["rope_theta"] if base else 0 for base in bases]
    if reader.get(ORIGINAL_LENGTH) is not None:  # Phi-3 reads it there
        originals = (rope.get(ORIGINAL_LENGTH) for rope in ropes.values())
        inner[ORIGINAL_LENGTH] = next(filter(None, originals), length)
    if (native := _unsaid(plan, with_part(config, reader.path, inner))) is not None:
        inner[ORIGINAL_LENGTH] = native
    return with_part(config, reader.path, inner)


def _unsaid(plan: ContextPlan, written: Config) -> int | None:
    """The length of pretraining, if plain frequencies and a stated length do not show it."""
    schedule = plan.longest(plan.main_layer)
    native = schedule.geometry.original_length
    if schedule.recipe or schedule.length != native:
        return None
    return native if ConfigReader(written).lengths().reference != native else None


def with_part(config: Config, path: tuple[str, ...], part: Config) -> Config:
    """The config with another part at the path."""
    if not path:
        return part
    return {**config, path[0]: with_part(config[path[0]], path[1:], part)}


def rope_parameters(plan: ContextPlan, source: object) -> dict[str, Any]:
    """Only the `rope_parameters` that `with_plan` writes."""
    return dict(text_config(with_plan(source, plan))["rope_parameters"])


def _written(
    reader: ConfigReader, steps: tuple[PlanStep, ...], layer: str, rope: Config
) -> tuple[Config, int]:
    """The stock setting for one layer type, and the `max_position_embeddings` that goes with it."""
    steps, growth = _without_growth(reader, steps, layer)
    for step in steps:
        _refuse_what_no_config_says(step.schedule, layer)
    last = steps[-1]
    schedule = last.schedule
    # The rope type that says most comes first; longrope can say any factors.
    setting, length = (
        _as_dynamic(reader, steps)
        or _as_named(reader, steps)
        or _as_default(reader, steps)
        or _as_longrope(reader, steps, layer)
    )
    original = schedule.geometry.original_length
    period = growth.get(ORIGINAL_LENGTH, original)
    if period != original and setting["rope_type"] != "default":  # which reads no such length
        raise Unsupported(
            f"{layer}: the plan scales queries up every {period} positions, and a stock config of "
            f"model type {reader.model_type!r} every {original}, its original length; plan "
            "without that scaling"
        )
    setting = {"rope_theta": schedule.geometry.base, **setting, **growth}
    setting |= {key: rope[key] for key in CARRIED_KEYS if key in rope}
    # Pairs that rest, or do not turn, are stated next to the factors.
    if schedule.geometry.resting_pairs:
        return _proportional(setting, schedule.geometry, layer), length
    partial = reader.get("partial_rotary_factor") is not None or "partial_rotary_factor" in rope
    if partial and not reader.get("qk_rope_head_dim"):
        setting["partial_rotary_factor"] = _rotated_share(schedule.geometry)
    return setting, length


def _without_growth(
    reader: ConfigReader, steps: tuple[PlanStep, ...], layer: str
) -> tuple[tuple[PlanStep, ...], Config]:
    """The steps without the growth of queries that the family's own code computes, and its keys."""
    if not reader.family.steps_log_n:
        return steps, {}
    scalings = {step.schedule.log_n for step in steps}
    log_n = scalings.pop() if len(scalings) == 1 else None
    if log_n is None:
        return steps, {QUERY_GROWTH: 0.0}  # its code fails where the key is missing
    if log_n.growth is None:
        return steps, {}
    keys = {QUERY_GROWTH: log_n.growth, ORIGINAL_LENGTH: log_n.length}
    return tuple(
        PlanStep(step.up_to_length, replace(step.schedule, log_n=None)) for step in steps
    ), keys


def _proportional(setting: Config, geometry: RotaryGeometry, layer: str) -> Config:
    """The setting of a head whose slowest pairs rest, which only one rope type leaves so."""
    if setting["rope_type"] not in ("default", "linear"):
        raise Unsupported(
            f"{layer}: {geometry.resting_pairs} of {geometry.pairs} pairs do not rotate (frequency "
            "0), and stock configs can only give the others another base or divide all by one "
            "factor; plan with ntk, base_change or linear, or install the plan with ropewalk"
        )
    share = geometry.turning_pairs / geometry.pairs
    return {**setting, "rope_type": "proportional", "partial_rotary_factor": share}


def _rotated_share(geometry: RotaryGeometry) -> float:
    """The share that every reader's int(head_dim · share) turns back into rotary_dim."""
    share = geometry.rotary_dim / geometry.head_dim
    whole = int(geometry.head_dim * share) == geometry.rotary_dim
    return share if whole else math.nextafter(share, 1)


def _refuse_what_no_config_says(schedule: RotarySchedule, layer: str) -> None:
    if schedule.kept_initial_positions:
        raise Unsupported(
            f"{layer}: no stock config can keep initial positions "
            f"(kept_initial_positions = {schedule.kept_initial_positions}); "
            "plan with 0, or install the plan with ropewalk"
        )
    if schedule.log_n is not None:
        raise Unsupported(
            f"{layer}: no stock config can scale queries by log n; "
            "plan without log n, or install the plan with ropewalk"
        )


def _as_dynamic(reader: ConfigReader, steps: tuple[PlanStep, ...]) -> tuple[Config, int] | None:
    """A ladder of dynamic NTK, which transformers climbs token by token."""
    schedule = steps[-1].schedule
    recipe = schedule.recipe
    if len(steps) == 1 or len(recipe) != 1 or recipe[0].method != "dynamic_ntk":
        return None
    factor = recipe[0].parameters.get("factor")
    if reader.family.only_longrope or not isinstance(factor, float):
        return None
    at = partial(dynamic_ntk.schedule, factor=factor)
    plain = RotarySchedule.plain(schedule.geometry)
    if ladder(at, plain, [step.up_to_length for step in steps]) != steps:
        return None
    return {"rope_type": "dynamic", "factor": factor}, schedule.geometry.original_length


def _as_named(reader: ConfigReader, steps: tuple[PlanStep, ...]) -> tuple[Config, int] | None:
    """Linear, YaRN or llama3 under their own names, if the recipe really gives these factors."""
    schedule = steps[-1].schedule
    geometry, recipe = schedule.geometry, schedule.recipe
    if len(steps) > 1 or len(recipe) != 1 or recipe[0].method not in ("linear", "yarn", "llama3"):
        return None
    if reader.family.only_longrope or rebuild(recipe, geometry) != schedule:
        return None
    method = recipe[0].method
    values = {key: value for key, value in recipe[0].parameters.items() if value is not None}
    values.pop("target_length")
    setting: Config = {"rope_type": method, "factor": schedule.length / geometry.original_length}
    if method == "linear":
        setting |= values
        # Runtimes multiply the stated length by the factor, except where it is scaled already.
        scaled = reader.family.length_is_scaled
        stated = schedule.length if scaled else geometry.original_length
        read = three_lengths(
            Stated(
                *(reader.model_type, "linear", stated),
                factor=setting["factor"],
                length_is_scaled=scaled,
            )
        )
        if (read.reference, read.served) != (geometry.original_length, schedule.length):
            return None
        return setting, stated
    scales_softmax = bool(values.pop("scale_softmax", False)) and "mscale_all_dim" in values
    if scales_softmax != (reader.family.softmax_mscale and "mscale_all_dim" in values):
        return None
    if reader.family.local_base and values.get("truncate") is False:
        return None  # transformers would not see it inside a layer type's setting
    if "base" in values:  # over which the method reaches out
        values["rope_theta"] = values.pop("base")
    setting[ORIGINAL_LENGTH] = geometry.original_length
    return {**setting, **values}, steps[-1].up_to_length


def _as_default(reader: ConfigReader, steps: tuple[PlanStep, ...]) -> tuple[Config, int] | None:
    """No scaling at all, or one that is only another base."""
    schedule = steps[-1].schedule
    base = schedule.geometric_base
    if len(steps) > 1 or base is None:
        return None
    if schedule.attention_scaling != 1 or schedule.softmax_scaling != 1:
        return None
    return {"rope_type": "default", "rope_theta": base}, steps[-1].up_to_length


def _as_longrope(
    reader: ConfigReader, steps: tuple[PlanStep, ...], layer: str
) -> tuple[Config, int]:
    """Any factors: as longrope with equal lists, or a short and a long list for two steps."""
    long = steps[-1].schedule
    geometry, length = long.geometry, steps[-1].up_to_length
    short = steps[0].schedule if len(steps) == 2 else long
    if len(steps) > 2 or (len(steps) == 2 and steps[0].up_to_length != geometry.original_length):
        raise Unsupported(
            f"{layer}: stock runtimes switch between two sets of factors, at the original length "
            f"{geometry.original_length}; this plan has steps up to "
            f"{', '.join(str(step.up_to_length) for step in steps)}; plan with one set of factors"
        )
    if (short.attention_scaling, short.softmax_scaling) != (
        long.attention_scaling,
        long.softmax_scaling,
    ) and reader.model_type != "phimoe":
        raise Unsupported(
            f"{layer}: stock transformers has one attention scaling for short and long sequences; "
            f"this plan has {short.attention_scaling:g} and {long.attention_scaling:g}"
        )
    setting: Config = {
        "rope_type": "longrope",
        "short_factor": short.rescale_factors.tolist(),
        "long_factor": long.rescale_factors.tolist(),
        "factor": max(1.0, length / geometry.original_length),
        "attention_factor": long.attention_scaling,
        # vLLM and SGLang read these in place of the attention factor.
        "short_mscale": short.attention_scaling,
        "long_mscale": long.attention_scaling,
        ORIGINAL_LENGTH: geometry.original_length,
    }
    if long.softmax_scaling != 1:
        if not reader.family.softmax_mscale or long.softmax_scaling < 1 or setting["factor"] <= 1:
            raise Unsupported(
                f"{layer}: a softmax scaling of {long.softmax_scaling:g} cannot be expressed in a "
                f"stock config of model type {reader.model_type!r}"
            )
        # The class scales the softmax by (0.1 · mscale_all_dim · ln s + 1)², solved for the key.
        growth = (math.sqrt(long.softmax_scaling) - 1) / (0.1 * math.log(setting["factor"]))
        setting["mscale_all_dim"] = growth
    return setting, length


def two_lists(steps: tuple[PlanStep, ...]) -> bool:
    return (
        len(steps) == 2
        and steps[0].up_to_length == steps[0].schedule.geometry.original_length
        and steps[0].schedule.attention_scaling == steps[1].schedule.attention_scaling
    )


def is_dynamic(plan: ContextPlan) -> bool:
    """True if it is a ladder of dynamic NTK, which transformers has under that name."""
    return any(
        len(steps) > 1 and steps[-1].schedule.method == "dynamic_ntk"
        for steps in plan.schedules.values()
    )


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
    ropes, family = rope_settings(inner), reader.family
    scaling = dict(ropes.pop("" if "" in ropes else FULL_ATTENTION))
    # transformers 5 takes `rope_theta` for full attention, and its default for windows (OLMo 3).
    plain = {"rope_type": "default", "rope_theta": family.defaults.get("rope_theta")}
    one_base = family.local_base == base and scaling["rope_theta"] == plain["rope_theta"]
    if ropes and not (one_base and ropes == {SLIDING_ATTENTION: plain}):
        raise Unsupported(
            "v4 keys: this model has separate settings for its layer types, which config keys of "
            "transformers 4 cannot hold; write the keys of transformers 5"
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
    current, planned = text_config(before), text_config(after)
    return {key: value for key, value in planned.items() if current.get(key) != value}
