"""One rope setting of a config: its values, and the lengths that go with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ropewalk.context_plan import SLIDING_ATTENTION, PlanStep
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.lengths import MAX_LENGTH
from ropewalk.models.config.geometry import geometry
from ropewalk.models.config.keys import (
    KNOWN_KEYS,
    LENGTH_BESIDE,
    METHOD_KEYS,
    ORIGINAL_LENGTH,
    QUERY_GROWTH,
    Config,
    ConfigKeys,
    rope_type,
)
from ropewalk.models.config.rope_types import ROPE_TYPES
from ropewalk.models.lengths import ALPHA, Lengths, Stated, three_lengths
from ropewalk.schedule import MAX_DIM, MAX_FACTOR, LogN, RotarySchedule
from ropewalk.untrusted import counted, real_number


@dataclass(frozen=True)
class RopeSetting:
    """One rope dict, with the lengths that go with it."""

    keys: ConfigKeys
    """The config that it is part of."""
    rope: Config
    kind: str
    stated_length: int
    original_length: int | None
    place: str
    """Its path in the file."""
    original_key: str
    """The key that states the original length."""

    def number(self, key: str) -> float | None:
        value = self.rope.get(key)
        return None if value is None else real_number(value, f"{self.place}.{key}")

    def factor(self) -> float:
        """s as stated, else the ratio of the two lengths."""
        factor = self.number("factor")
        if factor is None and self.original_length is not None:
            factor = self.stated_length / self.original_length
        if factor is None or not 1 <= factor <= MAX_FACTOR:
            raise InvalidValue(
                f"{self.place}.factor",
                factor,
                f"rope type {self.kind} needs an extension factor of at least 1 and at most "
                f"{MAX_FACTOR:g}",
                "correct it, or state original_max_position_embeddings",
            )
        return factor

    def lengths(self, factor: float = 1.0) -> Lengths:
        """The reference, trained and served length (lengths.py has the rule)."""
        kind = self.kind
        if kind == "dynamic" and self.rope.get("alpha") is not None:
            kind = ALPHA
        if kind == "proportional" and factor > 1:
            kind = "linear"
        stated = Stated(
            self.keys.model_type,
            kind,
            self.stated_length,
            length_key=self.keys.written("max_position_embeddings"),
            original=self.original_length,
            original_key=self.original_key,
            factor=factor,
            alpha=self.number("alpha"),
            length_is_scaled=self.keys.family.length_is_scaled,
            config=self.keys.config,
            trained=self.keys.trained,
        )
        try:
            return three_lengths(stated)
        except InvalidValue as error:
            raise error.renamed({"factor": f"{self.place}.factor"}) from None

    def plain(self, reference_length: int) -> RotarySchedule:
        """The frequencies of pretraining."""
        return RotarySchedule.plain(geometry(self.keys, self.rope, reference_length))

    def scaled(self) -> tuple[float, Lengths, RotarySchedule]:
        """The start of all scalings by one factor: it, the lengths, and the plain frequencies."""
        factor = self.factor()
        lengths = self.lengths(factor)
        return factor, lengths, self.plain(lengths.reference)


def rope_setting(keys: ConfigKeys, rope: Config) -> RopeSetting:
    """A layer type's setting, with the lengths that the config states for it."""
    rope = {key: value for key, value in rope.items() if value is not None}
    kind = rope_type(rope)
    if kind == "su" or (kind == "yarn" and keys.model_type == "phi3"):
        kind = "longrope"  # what early Phi-3 configs called it
    if kind == "mrope":
        kind = "default"  # sections of positions, over plain frequencies
    if kind == "axial":
        raise Unsupported(
            "rope type 'axial' rotates by the row and column of an image patch, not by a position "
            "in a text, so there is no context to extend"
        )
    if keys.family.only_longrope and kind not in ("default", "longrope"):
        raise InvalidValue(
            f"{keys.prefix}{keys.rope_key}.rope_type",
            kind,
            f"the class of model type {shortened(keys.model_type)} refuses all but 'longrope'",
            "write factors of type longrope, or remove the setting and plan anew",
        )
    if kind not in ROPE_TYPES:
        raise Unsupported(
            f"rope type {shortened(kind)} is not one that ropewalk can express; "
            f"it knows {', '.join(ROPE_TYPES)}"
        )
    for key in rope:
        if key not in KNOWN_KEYS:
            raise Unsupported(
                f"rope setting {shortened(key)} of type {kind!r} is unknown, and ignoring it "
                "could change what the model does; remove it if you know that it has no effect"
            )
    layer_type = rope.get("layer_type") if keys.is_nested else None
    place = f"{keys.prefix}{keys.rope_key}{f'.{layer_type}' if layer_type else ''}"
    stated = keys.count("max_position_embeddings", MAX_LENGTH)
    original, written = _original_length(keys, rope, place)
    return RopeSetting(keys, rope, kind, stated, original, place, written)


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    """The schedules of one layer type, by the rope type that its setting names."""
    try:
        steps = ROPE_TYPES[setting.kind](setting)
        _check_sections(setting, steps[-1].schedule.geometry.turning_pairs)
        log_n = _log_n(setting)
        return tuple(
            PlanStep(step.up_to_length, replace(step.schedule, log_n=log_n)) for step in steps
        )
    except InvalidValue as error:
        if error.key.startswith("rescale_factors"):
            factor = setting.rope.get("factor")
            effect = f"makes a pair turn {error.value} times slower"
            raise InvalidValue(
                f"{setting.place}.factor", factor, f"{effect}, which {error.rule}", "correct it"
            ) from None
        raise error.renamed(_names(setting)) from None


def _check_sections(setting: RopeSetting, pairs: int) -> None:
    """Every pair takes the position of one axis."""
    key, sections = f"{setting.place}.mrope_section", setting.rope.get("mrope_section")
    if sections is None:
        return
    if not isinstance(sections, list):
        raise InvalidValue(key, sections, "must be a list of whole numbers", "write [a, b, c]")
    counts = [counted(value, f"{key}[{i}]", MAX_DIM) for i, value in enumerate(sections)]
    if sum(counts) != pairs:
        raise InvalidValue(
            key, sections, f"must sum to {pairs}, the pairs of a head that turn", "correct it"
        )


def _log_n(setting: RopeSetting) -> LogN | None:
    """The family's scaling of queries by position."""
    length = setting.original_length or setting.stated_length
    flag, form = setting.keys.family.log_n_flag or ("", None)
    if form is not None and setting.keys.flag(flag):
        return LogN(form, length)
    beta = setting.number(QUERY_GROWTH)
    return LogN("steps", length, beta) if beta and setting.keys.family.steps_log_n else None


def _original_length(keys: ConfigKeys, rope: Config, place: str) -> tuple[int | None, str]:
    """The original length, if it is stated, and the key that states the length."""
    stated, key = rope.get(ORIGINAL_LENGTH), f"{place}.{ORIGINAL_LENGTH}"
    if stated is not None and keys.model_type not in LENGTH_BESIDE:
        return counted(stated, key, MAX_LENGTH), key
    if keys.get(ORIGINAL_LENGTH) is not None:
        return keys.count(ORIGINAL_LENGTH, MAX_LENGTH), keys.written(ORIGINAL_LENGTH)
    return None, keys.written("max_position_embeddings")


def _names(setting: RopeSetting) -> dict[str, str]:
    """The keys of the file, by the names that schedules and methods have for their values."""
    keys, place, layer_type = setting.keys, setting.place, setting.rope.get("layer_type")
    rope = keys.config.get(keys.rope_key)
    layer = rope.get(layer_type, rope) if isinstance(rope, Mapping) else {}
    in_rope = isinstance(layer, Mapping) and layer.get("rope_theta") is not None
    served = keys.written("max_position_embeddings")
    local = keys.family.local_base
    if local and layer_type == SLIDING_ATTENTION and not keys.is_nested:
        in_rope, base = False, keys.written(local)
    else:
        base = keys.written("rope_theta")
    return {
        "base": f"{place}.rope_theta" if in_rope else base,
        "original_length": setting.original_key,
        **dict.fromkeys(("length", "up_to_length", "target_length"), served),
        "attention_scaling": f"{place}.attention_factor",
        "softmax_scaling": f"{place}.mscale_all_dim",
        "growth": f"{place}.{QUERY_GROWTH}",
        **{key: f"{place}.{key}" for key in METHOD_KEYS},
    }
