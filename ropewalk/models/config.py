"""transformers' configs, read: what a model does now.

`present_plan` reads a config, of v4 (`rope_theta` and `rope_scaling`) or v5 (`rope_parameters`,
maybe nested by layer type), into the plan that the model follows as it stands. The config is taken
as plain JSON, so that neither torch nor transformers is needed.

What a config leaves to its model type is looked up in families.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep, ladder
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.models.families import FAMILIES, UNKNOWN
from ropewalk.scaling import (
    doublings,
    dynamic_ntk,
    linear,
    llama3,
    log_growth,
    longrope,
    yarn,
)
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.untrusted import read_json, real_number, whole_number

Config = dict[str, Any]

BUNDLED = "bundled"
"""The name of the model that ships with ropewalk."""
BUNDLED_FOLDER = Path(__file__).parent / BUNDLED


# Attributes under which a config may hold what the first name holds.
ALIASES = {
    "rope_theta": ("rope_theta", "rotary_emb_base", "global_rope_theta"),
    "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct"),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
}
# Every key that a rope dict may have and that we know the meaning of.
KNOWN_KEYS = {
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "finetuned"),
    *("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "truncate"),
    *("mscale", "mscale_all_dim", "low_freq_factor", "high_freq_factor", "short_factor"),
    *("long_factor", "short_mscale", "long_mscale"),
    "attn_factor",  # SGLang's, beside attention_factor
}


def load_config(source: object) -> Config:
    """A config as plain JSON: from a config.json, a model's folder, or a transformers object."""
    if isinstance(source, Mapping):
        return dict(source)
    if hasattr(source, "to_dict"):
        return dict(source.to_dict())
    if not isinstance(source, str | Path):
        raise InputError(
            f"{source!r} is not a config: give a config.json, a folder or a config object"
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
    reader = ConfigReader(config)
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


def text_config(config: Config) -> Config:
    """The part of a config that speaks of the language model: itself, or a part of it."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


class ConfigReader:
    """One config, with its family's defaults behind it."""

    def __init__(self, config: Config) -> None:
        self.config: Config = text_config(config)
        self.model_type = str(self.config.get("model_type") or config.get("model_type") or "")
        self.family = FAMILIES.get(self.model_type, UNKNOWN)
        if self.config.get("alibi"):
            raise Unsupported(f"{self.model_type}: this model uses ALiBi, not a rotary embedding")

    def get(self, key: str) -> Any:
        """A value of the config, under any of its names, or the family's default."""
        for name in ALIASES.get(key, (key,)):
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
        rope = self.config.get("rope_scaling") or self.config.get("rope_parameters")
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
                    "rope_parameters or rotary_emb_base): it has no RoPE to change"
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
                f"it knows {', '.join(_READERS)}"
            )
        for key in rope:
            if key not in KNOWN_KEYS:
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


def _read_default(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    plain = RotarySchedule.plain(reader.geometry(setting.rope, setting.stated_length))
    return (PlanStep(plain.length, plain),)


def _read_linear(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    factor = setting.factor()
    if setting.original_length is None:
        original, length = linear_lengths(reader, setting.stated_length, factor)
    else:
        original, length = setting.lengths(factor)
    plain = RotarySchedule.plain(reader.geometry(setting.rope, original))
    return (PlanStep(length, linear.schedule(plain, length, factor=factor)),)


def linear_lengths(reader: ConfigReader, stated: int, factor: float) -> tuple[int, int]:
    """The original length and the one served, where linear scaling states only one."""
    if reader.family.length_is_scaled:
        return max(1, round(stated / factor)), stated
    return stated, round(stated * factor)


def _read_dynamic(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    """transformers computes a base for every length; the ladder holds the doublings up to f·L₀."""
    factor = setting.factor()
    original = setting.original_length or setting.stated_length
    plain = RotarySchedule.plain(reader.geometry(setting.rope, original))

    def at(start: RotarySchedule, length: int) -> RotarySchedule:
        return dynamic_ntk.schedule(start, length, factor=factor)

    return ladder(at, plain, doublings(original, int(original * max(factor, 2.0))))


def _read_yarn(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
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


def _read_llama3(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
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


def _read_longrope(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
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


_READERS: dict[str, Callable[[ConfigReader, _Setting], tuple[PlanStep, ...]]] = {
    "default": _read_default,
    "linear": _read_linear,
    "dynamic": _read_dynamic,
    "yarn": _read_yarn,
    "llama3": _read_llama3,
    "longrope": _read_longrope,
}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
