"""A runtime's reading of a folder or a file: the values, and the reading of a config by rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.models.config import KNOWN_KEYS, Config, ConfigReader
from ropewalk.schedule import FloatArray
from ropewalk.values import Value

BY_ITS_RULES = "by its rules, not run"
MEASURED = "measured"
RUN = "run"
NOT_MEASURED = "not measured"
STOCK, LLAMA_CPP, OLLAMA = "transformers", "llama.cpp", "ollama"
"""The first is measured; the others are read by their rules."""
MOST_LAYERS = 1024
MOST_OF_ANYTHING = 100_000  # experts, heads and the like: what building loops over

Basis = Literal["run", "by its rules", "not looked at"]
Switch = Literal["never", "by the length at hand", "by the declared length"]


@dataclass(frozen=True, eq=False)
class Effective(Value):
    """The frequencies and factor of cos and sin, in sequences up to a length."""

    up_to_length: int
    inverse_frequencies: FloatArray
    attention_scaling: float
    softmax_scaling: float = 1.0
    """The factor of all logits, with those of dimensions that do not rotate."""

    @classmethod
    def of(cls, step: PlanStep) -> Effective:
        schedule = step.schedule
        factors = (schedule.attention_scaling, schedule.softmax_scaling)
        return cls(step.up_to_length, schedule.inverse_frequencies, *factors)

    @property
    def slowest_period(self) -> float:
        """Positions in which the slowest pair turns once; infinite if a pair does not turn."""
        slowest = float(self.inverse_frequencies.min())
        return 2 * math.pi / slowest if slowest else math.inf


@dataclass(frozen=True, eq=False)
class RotaryReading(Value):
    """One runtime's reading of a folder or a file."""

    runtime: str
    source: str
    """`run` with its weights, `measured` by its own rotary modules, or from written-down rules."""
    layers: Mapping[str, tuple[Effective, ...]] = field(default_factory=dict)
    """By layer type, in order of length; the last step serves all longer sequences too."""
    switches: Switch = "never"
    """Its choice among the steps."""
    limit: int | None = None
    """The longest sequence that it accepts by default; None if it never refuses one."""
    refused: str | None = None
    """Why the runtime would not load this."""
    unread: str | None = None
    """Why its behaviour is unknown."""
    notes: tuple[str, ...] = ()
    """The parts of the setting that its class of the model loses."""
    remedy: str = ""
    """The remedy, if that is neither an export anew nor another base."""

    @property
    def basis(self) -> Basis:
        """The basis of a judgement of this runtime."""
        if self.unread:
            return "not looked at"
        return "run" if self.source == RUN else "by its rules"

    @classmethod
    def unknown(cls, runtime: str, why: str) -> RotaryReading:
        """The reading of a runtime of which nothing is known here."""
        return cls(runtime, BY_ITS_RULES, unread=why)

    def derived(self) -> dict[str, object]:
        return {"basis": self.basis}

    def at(self, length: int, layer_type: str) -> Effective | None:
        steps = self.layers.get(layer_type, ())
        fitting = (step for step in steps if length <= step.up_to_length)
        return next(fitting, steps[-1] if steps else None)


def by_rules(
    runtime: str,
    config: Config,
    seen: Callable[[ConfigReader, Config], tuple[PlanStep, ...]],
    switches: Switch,
) -> RotaryReading:
    """The reading of a config that a runtime sees as `seen` returns it."""
    layers = {}
    try:
        reader = ConfigReader(config)
        for layer_type, rope in reader.layer_settings().items():
            steps = seen(reader, {key: value for key, value in rope.items() if value is not None})
            layers[layer_type] = tuple(map(Effective.of, steps))
    except Unsupported as error:
        return RotaryReading.unknown(runtime, str(error))
    except InvalidValue as error:
        return RotaryReading(runtime, BY_ITS_RULES, refused=str(error))
    changes = any(len(steps) > 1 for steps in layers.values())
    return RotaryReading(runtime, BY_ITS_RULES, layers, switches if changes else "never")


def check_counts(config: Mapping[str, Any]) -> None:
    """A config may come from anywhere: refuse what would take for ever to build."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            check_counts(value)
        elif isinstance(value, int):
            layers = "layer" in key and "size" not in key  # as Gemma 4's vocab_size_per_layer_input
            most = MOST_LAYERS if layers else MOST_OF_ANYTHING
            if (layers or key.startswith(("num_", "n_"))) and value > most:
                raise InvalidValue(
                    f"config.{key}",
                    value,
                    f"is more than {most}",
                    "check that this config is the right one",
                )


def scaled(step: PlanStep, scaling: float) -> PlanStep:
    """The step with another factor of cos and sin."""
    return replace(step, schedule=replace(step.schedule, attention_scaling=scaling))


def kind_of(rope: Mapping[str, object]) -> str:
    """The rope type, under today's name."""
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    return "longrope" if kind == "su" else kind


def known(rope: Config) -> Config:
    """The setting without the keys that transformers does not read."""
    return {key: value for key, value in rope.items() if key in KNOWN_KEYS}


def without(rope: Config, keys: set[str]) -> Config:
    return {key: value for key, value in rope.items() if key not in keys}


def share(rope: Config) -> Config:
    """The share of each head that rotates, if it is stated."""
    return {key: rope[key] for key in ("partial_rotary_factor",) if key in rope}


def with_base(rope: Config, base: float) -> Config:
    """A setting of which nothing but a base arrives."""
    place = {key: rope[key] for key in ("layer_type",) if key in rope}
    return {"rope_theta": base, **place, **share(rope)}


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def is_headless(config: Config) -> bool:
    """True if its `architectures` are of a class without an output head."""
    return str(config.get("architectures")).endswith(("Model']", "ForSequenceClassification']"))
