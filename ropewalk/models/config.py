"""transformers' configs in and out: what a model does now, and a plan written the stock way.

`present_plan` reads a config, of v4 (`rope_theta` and `rope_scaling`) or v5 (`rope_parameters`,
maybe nested by layer type), into the plan that the model follows as it stands. `with_plan` writes
a plan back with stock keys only, or refuses what they cannot say. Both take the config as plain
JSON, so that neither torch nor transformers is needed.

What a config leaves to its model type is looked up in families.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.models.families import FAMILIES, UNKNOWN
from ropewalk.plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep, ladder
from ropewalk.scaling import (
    doublings,
    dynamic_ntk,
    linear,
    llama3,
    log_growth,
    longrope,
    rebuild,
    yarn,
)
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.untrusted import read_json, real_number, whole_number

Config = dict[str, Any]


# Attributes under which a config may hold what the first name holds.
_ALIASES = {
    "rope_theta": ("rope_theta", "rotary_emb_base", "global_rope_theta"),
    "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct"),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
}
# Every key that a rope dict may have and that we know the meaning of.
_KNOWN_KEYS = {
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "finetuned"),
    *("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "truncate"),
    *("mscale", "mscale_all_dim", "low_freq_factor", "high_freq_factor", "short_factor"),
    *("long_factor", "short_mscale", "long_mscale"),
}


def load_config(source: object) -> Config:
    """A config as plain JSON: from a config.json, a model's folder, or a transformers object."""
    if isinstance(source, Mapping):
        return dict(source)
    if hasattr(source, "to_dict"):
        return dict(source.to_dict())
    if not isinstance(source, str | Path):
        raise InputError(
            f"{source!r} is no config: give a config.json, a folder or a config object"
        )
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds no JSON object; expected a transformers config.json")
    return value


def present_plan(source: object, model: str | None = None) -> ContextPlan:
    """The plan that a model follows as its config stands."""
    config = load_config(source)
    reader = _Reader(config)
    name = model or str(config.get("_name_or_path") or reader.model_type or "model")
    layers = reader.layer_settings()
    steps = {layer: reader.steps(rope) for layer, rope in layers.items()}
    # A sliding-window layer sees no distance above its window, so it serves what the others serve.
    target = max(own[-1].up_to_length for own in steps.values())
    return ContextPlan(
        model=name,
        schedules={
            layer: (*own[:-1], replace(own[-1], up_to_length=target))
            for layer, own in steps.items()
        },
        provenance={"source": "config", "model_type": reader.model_type},
    )


class _Reader:
    """One config, with its family's defaults behind it."""

    def __init__(self, config: Config) -> None:
        inner = config.get("text_config")
        self.config: Config = dict(inner) if isinstance(inner, Mapping) else config
        self.model_type = str(self.config.get("model_type") or config.get("model_type") or "")
        self.family = FAMILIES.get(self.model_type, UNKNOWN)
        if self.config.get("alibi"):
            raise Unsupported(f"{self.model_type}: this model uses ALiBi and has nothing to rotate")

    def get(self, key: str) -> Any:
        """A value of the config, under any of its names, or the family's default."""
        for name in _ALIASES.get(key, (key,)):
            if self.config.get(name) is not None:
                return self.config[name]
        return self.family.defaults.get(key)

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise InvalidValue(
                f"config.{key}", None, "is missing, and its model type has no default", "add it"
            )
        return value

    def layer_settings(self) -> dict[str, Config]:
        """The rope settings by layer type, each a flat dict with its base."""
        rope = self.config.get("rope_parameters") or self.config.get("rope_scaling")
        rope = rope or self.family.rope
        if not isinstance(rope, Mapping):
            raise InvalidValue("config.rope_parameters", rope, "must be an object", "write {…}")
        nested = {key: value for key, value in rope.items() if isinstance(value, Mapping)}
        if nested:
            layers = {key: dict(value) for key, value in nested.items()}
            for setting in layers.values():
                if "truncate" in setting:  # transformers looks for it beside the layer types only
                    setting["truncate"] = rope.get("truncate", True)
        elif self.family.local_base:
            local = {"rope_theta": self.need(self.family.local_base)}
            if self.family.sliding_scales:
                local = {**rope, **local}
            layers = {FULL_ATTENTION: dict(rope), SLIDING_ATTENTION: local}
        else:
            layers = {self.family.rotates: dict(rope)}
        base = self.get("rope_theta")
        for setting in layers.values():
            if setting.get("rope_theta") is None:
                setting["rope_theta"] = base
            if setting["rope_theta"] is None:
                raise Unsupported(
                    f"model type {self.model_type!r} states no rotary base (rope_theta, "
                    "rope_parameters or rotary_emb_base): it has no RoPE that a config could change"
                )
        return layers

    def geometry(self, rope: Config, original_length: int) -> RotaryGeometry:
        if self.get("qk_rope_head_dim"):  # multi-head latent attention: only this part turns
            rotary_dim = whole_number(self.need("qk_rope_head_dim"), "config.qk_rope_head_dim")
            unrotated = whole_number(self.get("qk_nope_head_dim") or 0, "config.qk_nope_head_dim")
            head_dim = rotary_dim + unrotated
        else:
            if self.get("head_dim") is not None:
                head_dim = whole_number(self.get("head_dim"), "config.head_dim")
            else:
                heads = whole_number(self.need("num_attention_heads"), "config.num_attention_heads")
                hidden = whole_number(self.need("hidden_size"), "config.hidden_size")
                if heads < 1:
                    raise InvalidValue(
                        "config.num_attention_heads", heads, "must be at least 1", "correct it"
                    )
                head_dim = hidden // heads
            share = rope.get("partial_rotary_factor")
            if share is None:
                share = self.get("partial_rotary_factor")
            share = 1.0 if share is None else real_number(share, "partial_rotary_factor")
            rotary_dim = int(head_dim * share)
        interleaved = self.family.pair_layout == "interleaved"
        if self.config.get("rope_interleave") is not None:
            interleaved = bool(self.config["rope_interleave"])
        try:
            return RotaryGeometry(
                head_dim=head_dim,
                rotary_dim=rotary_dim,
                base=real_number(rope["rope_theta"], "rope_theta"),
                original_length=original_length,
                pair_layout="interleaved" if interleaved else "half",
            )
        except InvalidValue as error:
            raise error.within("config") from None

    def steps(self, rope: Config) -> tuple[PlanStep, ...]:
        """The schedules of one layer type, by the rope type that its setting names."""
        rope = {key: value for key, value in rope.items() if value is not None}
        kind = str(rope.get("rope_type") or rope.get("type") or "default")
        if kind == "su" or (kind == "yarn" and self.model_type == "phi3"):
            kind = "longrope"  # what early Phi-3 configs called it
        if kind not in _READERS:
            raise Unsupported(
                f"rope type {kind!r} is not one that ropewalk can express; "
                f"it reads {', '.join(_READERS)}"
            )
        for key in rope:
            if key not in _KNOWN_KEYS:
                raise Unsupported(
                    f"rope setting {key!r} of type {kind!r} is unknown, and ignoring it could "
                    "change what the model does; remove it if you know that it has no effect"
                )
        length = whole_number(self.need("max_position_embeddings"), "max_position_embeddings")
        # Phi-3 keeps the original length beside the dict, and there it has priority.
        original = self.get("original_max_position_embeddings")
        if original is None:
            original = rope.get("original_max_position_embeddings")
        if original is not None:
            original = whole_number(original, "original_max_position_embeddings")
        return _READERS[kind](self, _Setting(rope, kind, length, original))


@dataclass(frozen=True)
class _Setting:
    """One rope dict, with the lengths that go with it."""

    rope: Config
    kind: str
    stated_length: int
    original_length: int | None

    def number(self, key: str) -> float | None:
        value = self.rope.get(key)
        return None if value is None else real_number(value, f"rope_parameters.{key}")

    def factor(self) -> float:
        """s as stated, else the ratio of the two lengths."""
        factor = self.number("factor")
        if factor is None and self.original_length is not None:
            factor = self.stated_length / self.original_length
        if factor is None or factor < 1:
            raise InvalidValue(
                "rope_parameters.factor",
                factor,
                f"rope type {self.kind} needs an extension factor of at least 1",
                "add it, or original_max_position_embeddings",
            )
        return factor

    def lengths(self, factor: float) -> tuple[int, int]:
        """The original length and the one served.

        A config that states a longer length than the original serves that; one that states only
        the original (Qwen2.5 with YaRN) serves `factor` times as much.
        """
        original = self.original_length or self.stated_length
        longer = self.stated_length > original
        return original, self.stated_length if longer else round(original * factor)


def _read_default(reader: _Reader, setting: _Setting) -> tuple[PlanStep, ...]:
    plain = RotarySchedule.plain(reader.geometry(setting.rope, setting.stated_length))
    return (PlanStep(plain.length, plain),)


def _read_linear(reader: _Reader, setting: _Setting) -> tuple[PlanStep, ...]:
    factor = setting.factor()
    if setting.original_length is None:
        original, length = _linear_lengths(reader, setting.stated_length, factor)
    else:
        original, length = setting.lengths(factor)
    plain = RotarySchedule.plain(reader.geometry(setting.rope, original))
    return (PlanStep(length, linear.schedule(plain, length, factor=factor)),)


def _linear_lengths(reader: _Reader, stated: int, factor: float) -> tuple[int, int]:
    """The original length and the one served, where linear scaling states only one."""
    if reader.family.length_is_scaled:
        return max(1, round(stated / factor)), stated
    return stated, round(stated * factor)


def _read_dynamic(reader: _Reader, setting: _Setting) -> tuple[PlanStep, ...]:
    """transformers computes a base for every length; the ladder holds the doublings up to f·L₀."""
    factor = setting.factor()
    original = setting.original_length or setting.stated_length
    plain = RotarySchedule.plain(reader.geometry(setting.rope, original))

    def at(start: RotarySchedule, length: int) -> RotarySchedule:
        return dynamic_ntk.schedule(start, length, factor=factor)

    return ladder(at, plain, doublings(original, int(original * max(factor, 2.0))))


def _read_yarn(reader: _Reader, setting: _Setting) -> tuple[PlanStep, ...]:
    factor = setting.factor()
    original, length = setting.lengths(factor)
    plain = RotarySchedule.plain(reader.geometry(setting.rope, original))
    truncate = setting.rope.get("truncate", True)
    if not isinstance(truncate, bool):
        raise InvalidValue("rope_parameters.truncate", truncate, "must be true or false", "fix it")
    extended = yarn.schedule(
        plain,
        length,
        beta_fast=setting.number("beta_fast") or 32.0,
        beta_slow=setting.number("beta_slow") or 1.0,
        truncate=truncate,
        attention_factor=setting.number("attention_factor"),
        mscale=setting.number("mscale"),
        mscale_all_dim=setting.number("mscale_all_dim"),
        scale_softmax=reader.family.softmax_mscale,
        factor=factor,
    )
    return (PlanStep(length, extended),)


def _read_llama3(reader: _Reader, setting: _Setting) -> tuple[PlanStep, ...]:
    factor = setting.factor()
    original, length = setting.lengths(factor)
    plain = RotarySchedule.plain(reader.geometry(setting.rope, original))
    extended = llama3.schedule(
        plain,
        length,
        low_freq_factor=_or(setting.number("low_freq_factor"), 1.0),
        high_freq_factor=_or(setting.number("high_freq_factor"), 4.0),
        factor=factor,
    )
    return (PlanStep(length, extended),)


def _read_longrope(reader: _Reader, setting: _Setting) -> tuple[PlanStep, ...]:
    factor = setting.factor()
    original, length = setting.lengths(factor)
    plain = RotarySchedule.plain(reader.geometry(setting.rope, original))
    attention = setting.number("attention_factor")
    if attention is None:
        attention = 1.0
        if factor > 1:
            attention = math.sqrt(1 + math.log(factor) / math.log(original))
    softmax = 1.0
    if reader.family.softmax_mscale and setting.number("mscale_all_dim"):
        softmax = log_growth(factor, setting.number("mscale_all_dim") or 0.0) ** 2

    def step(name: str, up_to_length: int) -> PlanStep:
        factors = setting.rope.get(f"{name}_factor")
        if not isinstance(factors, list):
            raise InvalidValue(
                f"rope_parameters.{name}_factor", factors, "must be a list of numbers", "add it"
            )
        scaling = attention
        if reader.model_type == "phimoe":  # the one family whose own code reads these
            scaling = _or(setting.number(f"{name}_mscale"), attention)
        try:
            schedule = longrope.schedule(
                plain, up_to_length, factors=factors, attention_factor=scaling
            )
        except InvalidValue as error:
            key = error.key.replace("rescale_factors", f"{name}_factor")
            key = key.replace("factors", f"{name}_factor") if key.startswith("factors") else key
            raise InvalidValue(
                f"rope_parameters.{key}", error.value, error.rule, error.remedy
            ) from None
        return PlanStep(up_to_length, replace(schedule, softmax_scaling=softmax))

    long = step("long", length)
    if setting.rope.get("short_factor") == setting.rope.get("long_factor") or length <= original:
        return (long,)
    return (step("short", original), long)


_READERS: dict[str, Callable[[_Reader, _Setting], tuple[PlanStep, ...]]] = {
    "default": _read_default,
    "linear": _read_linear,
    "dynamic": _read_dynamic,
    "yarn": _read_yarn,
    "llama3": _read_llama3,
    "longrope": _read_longrope,
}


def with_plan(source: object, plan: ContextPlan) -> Config:
    """A copy of the config that makes stock transformers (v5) follow the plan.

    Native rope types where one says exactly this, any other factors as `longrope` with equal
    lists; what stock keys cannot say is refused by name.
    """
    config = load_config(source)
    reader = _Reader(config)
    layers = reader.layer_settings()
    if set(plan.schedules) != set(layers):
        raise InvalidValue(
            "plan.schedules",
            sorted(plan.schedules),
            f"this model has the layer types {sorted(layers)}",
            "make the plan from this model's own config",
        )
    written = {
        layer: _written(reader, plan.steps(layer), layer, rope) for layer, rope in layers.items()
    }
    ropes = {layer: rope for layer, (rope, _) in written.items()}
    # Sliding-window layers, which keep to their window, have no say in the stated length.
    length = written[FULL_ATTENTION if FULL_ATTENTION in written else next(iter(written))][1]
    inner = dict(reader.config)
    for stale in (
        "rope_scaling",
        "rope_parameters",
        *_ALIASES["rope_theta"],
        reader.family.local_base,
    ):
        inner.pop(stale or "", None)
    nested = bool(reader.family.local_base) or len(ropes) > 1
    inner["rope_parameters"] = ropes if nested else next(iter(ropes.values()))
    inner["max_position_embeddings"] = length
    originals = [rope.get("original_max_position_embeddings") for rope in ropes.values()]
    if reader.get("original_max_position_embeddings") is not None:  # Phi-3 reads it there
        inner["original_max_position_embeddings"] = next(
            (original for original in originals if original), length
        )
    if isinstance(config.get("text_config"), Mapping):
        return {**config, "text_config": inner}
    return inner


def rope_parameters(plan: ContextPlan, source: object) -> dict[str, Any]:
    """Only the `rope_parameters` that `with_plan` writes."""
    config = with_plan(source, plan)
    inner = config.get("text_config") or config
    return dict(inner["rope_parameters"])


def _written(
    reader: _Reader, steps: tuple[PlanStep, ...], layer: str, rope: Config
) -> tuple[Config, int]:
    """The stock setting for one layer type, and the `max_position_embeddings` that goes with it."""
    for step in steps:
        _refuse_what_no_config_says(step.schedule, layer)
    last = steps[-1]
    schedule = last.schedule
    setting, length = (
        _as_dynamic(reader, steps)
        or _as_named(reader, steps)
        or _as_default(reader, steps)
        or _as_longrope(reader, steps, layer)
    )
    setting = {"rope_theta": schedule.geometry.base, **setting}
    partial = reader.get("partial_rotary_factor") is not None or "partial_rotary_factor" in rope
    if partial and not reader.get("qk_rope_head_dim"):
        setting["partial_rotary_factor"] = _rotated_share(schedule.geometry)
    return setting, length


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
            "plan without it, or install the plan with ropewalk"
        )


def _as_dynamic(reader: _Reader, steps: tuple[PlanStep, ...]) -> tuple[Config, int] | None:
    """A ladder of dynamic NTK, which transformers climbs token by token."""
    schedule = steps[-1].schedule
    recipe = schedule.recipe
    if len(steps) == 1 or len(recipe) != 1 or recipe[0].method != "dynamic_ntk":
        return None
    factor = recipe[0].parameters.get("factor")
    if reader.family.only_longrope or not isinstance(factor, float):
        return None

    def at(start: RotarySchedule, length: int) -> RotarySchedule:
        return dynamic_ntk.schedule(start, length, factor=factor)

    plain = RotarySchedule.plain(schedule.geometry)
    if ladder(at, plain, [step.up_to_length for step in steps]) != steps:
        return None
    return {"rope_type": "dynamic", "factor": factor}, schedule.geometry.original_length


def _as_named(reader: _Reader, steps: tuple[PlanStep, ...]) -> tuple[Config, int] | None:
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
        if _linear_lengths(reader, stated, setting["factor"]) != (
            geometry.original_length,
            schedule.length,
        ):
            return None
        return setting, stated
    scales_softmax = bool(values.pop("scale_softmax", False)) and "mscale_all_dim" in values
    if scales_softmax != (reader.family.softmax_mscale and "mscale_all_dim" in values):
        return None
    if reader.family.local_base and values.get("truncate") is False:
        return None  # transformers would not see it inside a layer type's setting
    setting["original_max_position_embeddings"] = geometry.original_length
    return {**setting, **values}, schedule.length


def _as_default(reader: _Reader, steps: tuple[PlanStep, ...]) -> tuple[Config, int] | None:
    """No scaling at all, or one that is only another base."""
    schedule = steps[-1].schedule
    base = schedule.geometric_base
    if len(steps) > 1 or base is None:
        return None
    if schedule.attention_scaling != 1 or schedule.softmax_scaling != 1:
        return None
    return {"rope_type": "default", "rope_theta": base}, steps[-1].up_to_length


def _as_longrope(reader: _Reader, steps: tuple[PlanStep, ...], layer: str) -> tuple[Config, int]:
    """Any factors: as longrope with equal lists, or a short and a long list for two steps."""
    long = steps[-1].schedule
    geometry, length = long.geometry, steps[-1].up_to_length
    short = steps[0].schedule if len(steps) == 2 else long
    if len(steps) > 2 or (len(steps) == 2 and steps[0].up_to_length != geometry.original_length):
        raise Unsupported(
            f"{layer}: stock runtimes switch between two sets of factors, at the original length "
            f"{geometry.original_length}; this plan has steps up to "
            f"{', '.join(str(step.up_to_length) for step in steps)}; plan with one schedule"
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
        "original_max_position_embeddings": geometry.original_length,
    }
    if long.softmax_scaling != 1:
        if not reader.family.softmax_mscale or long.softmax_scaling < 1 or setting["factor"] <= 1:
            raise Unsupported(
                f"{layer}: a softmax scaling of {long.softmax_scaling:g} cannot be said in a stock "
                f"config of model type {reader.model_type!r}"
            )
        growth = (math.sqrt(long.softmax_scaling) - 1) / (0.1 * math.log(setting["factor"]))
        setting["mscale_all_dim"] = growth
    return setting, length


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
