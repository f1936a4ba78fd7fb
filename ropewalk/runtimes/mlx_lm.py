"""mlx-lm's rules: its own rotary classes, and which of a config's keys each model class reads.

mlx-lm loads a folder as it is, but most of its classes read `rope_theta` and `rope_scaling`, the
keys of transformers 4: of a config with `rope_parameters` alone they take no setting, and their own
default base, without a word. What arrives in each class was measured by running it
(tools/observatory/mlx_lm_classes.py) and stands in the table next to this file, by the keys of the
config, layer type and rope type:

    own       the rotary class of the type gets the setting
    plain     only the base arrives
    base N    not even the base: plain frequencies of N
    refused   the class fails on it
    other     something else, which no rule here says

`own` is not transformers' formula everywhere: yarn and longrope compute their attention factor
themselves, yarn's ramp begins and ends at whole pairs, and longrope uses its long list always.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader
from ropewalk.runtimes.model_classes import GROWTH_IN_ROPE
from ropewalk.runtimes.reading import (
    RotaryReading,
    by_rules,
    known,
    scaled,
    whole,
    with_base,
    without,
)
from ropewalk.runtimes.runtime import Runtime
from ropewalk.untrusted import real_number
from ropewalk.values import table_in

ANY = "*"
"""Every rope type, in the table."""
TABLE = Path(__file__).with_name("mlx_lm.json")
V4, V5 = "rope_theta", "rope_parameters"
"""The key by which a config states its setting, as transformers 4 and 5 do."""
ROPE_TYPE = "rope_type"
SHORT = f"{V4}, {ROPE_TYPE} alone"
"""The form of transformers 4, without `type`, the older name of the rope type."""
_OLD_KEYS = "export it again with --v4-keys, which its classes read"
_NO_OLD_KEYS = "use another runtime: its class reads the keys of transformers 4 only"
_OWN = (
    "plan with linear, llama3, ntk or YaRN's own attention factor, which it computes itself, as it "
    "does longrope's"
)
_ALL = "mscale_all_dim"
_LENGTH_BESIDE = ("phi3",)
"""Classes that read longrope's original length next to the setting; the others, inside."""
# What its classes take for the original length where the setting does not say.
_ORIGINAL = {"yarn": 4096, "llama3": 8192}


class MlxLm(Runtime):
    """mlx-lm, which refuses no length: nothing in it looks at the stated one."""

    name = "mlx-lm"
    by_model_type = True

    def release(self) -> str:
        return str(table_in(TABLE)["version"])

    def read(self, config: Config) -> RotaryReading:
        said: list[tuple[str, str]] = []

        def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
            # The table says what arrives; each outcome has its own reading, note and remedy.
            outcome, form, rope = _arrives(reader, rope)
            old_keys = _NO_OLD_KEYS if reader.is_nested else _OLD_KEYS
            served = f"mlx-lm {self.release()}'s class of {reader.model_type}"
            if outcome == "own":
                said.append(("", _OWN))
                return rotary_steps(reader, rope)
            if outcome.startswith("refused"):
                raise InvalidValue(
                    "rope_type",
                    _kind(rope),
                    f"fails in {served}, {outcome.removeprefix('refused: ')}",
                    old_keys if form == V5 else "use another method, or another runtime",
                )
            if outcome == "other":
                raise Unsupported(
                    f"{served} computes rope type {_kind(rope)!r} in a way that ropewalk does not "
                    "know; run the model there to see"
                )
            if outcome != "plain":
                said.append((f"{served} does not read {form}", old_keys))
            elif _kind(rope) != "default":
                said.append((f"{served} does not pass the scaling on", ""))
            base = (
                rope["rope_theta"] if outcome == "plain" else float(outcome.removeprefix("base "))
            )
            return reader.steps(with_base(rope, base))

        reading = by_rules(self.name, config, seen, "by the length at hand")
        notes = tuple(dict.fromkeys(note for note, _ in said if note))
        return replace(reading, notes=notes, remedy=next((help for _, help in said if help), ""))

    def growth_key(self, config: Config) -> str | None:
        row = _row(ConfigReader(config).model_type)
        return None if row is None else GROWTH_IN_ROPE if row.get("growth") else ""


def rotary_steps(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """The schedules of a setting that arrives in mlx-lm's own rotary classes."""
    kind = _kind(rope)
    if rope.get("type") == "su":
        raise InvalidValue("type", "su", "mlx-lm knows it as longrope", "write longrope")
    rope = {**without(rope, {"type"}), ROPE_TYPE: kind}
    if kind in _ORIGINAL:  # it never looks beside the setting
        rope = {ORIGINAL_LENGTH: _ORIGINAL[kind], **rope}
        reader = ConfigReader(without(reader.config, {ORIGINAL_LENGTH}))
    if kind == "yarn":
        keys = {"attention_factor", "truncate", "mscale", "mscale_all_dim"}
        steps = reader.steps(known(without(rope, keys)))
        if (factor := rope.get("factor")) is None:
            raise InvalidValue("factor", None, "mlx-lm's YaRN fails without it", "add it")
        grown = _growth(factor, rope, "mscale", 1) / (_growth(factor, rope, _ALL, 0) or math.nan)
        return tuple(scaled(step, grown) for step in steps)
    if kind == "longrope":
        beside = reader.model_type in _LENGTH_BESIDE
        step = reader.steps(known(rope))[-1]
        original = whole(reader.get(ORIGINAL_LENGTH) if beside else rope.get(ORIGINAL_LENGTH))
        if original is None or original < 2:
            raise InvalidValue(
                ORIGINAL_LENGTH,
                original,
                f"mlx-lm looks for it {'beside' if beside else 'inside'} the setting",
                "add it there",
            )
        stretch = max(1.0, reader.need("max_position_embeddings") / original)
        return (scaled(step, math.sqrt(1 + math.log(stretch) / math.log(original))),)
    return reader.steps(known(rope))


def _kind(rope: Config) -> str:
    """The rope type, as mlx-lm takes it: by the older key first."""
    kind = str(rope.get("type") or rope.get(ROPE_TYPE) or "default")
    return "longrope" if kind == "su" else kind


def _arrives(reader: ConfigReader, rope: Config) -> tuple[str, str, Config]:
    """The part of the setting that arrives, by the table; its keys, and their values."""
    kind, table = reader.model_type, table_in(TABLE)
    if reader.path:
        raise Unsupported(
            "how mlx-lm reads a model with a separate text part was not measured; run it "
            "there to see"
        )
    if kind not in table["classes"]:
        raise InvalidValue(
            "model_type", kind, f"mlx-lm {table['version']} has no class for it", "use another"
        )
    row = _row(kind)
    if row is None:
        raise Unsupported(
            f"how mlx-lm's class of {shortened(kind)} reads rope settings was not measured; run "
            "the model there to see"
        )
    form, layer_type = V5 if reader.config.get(V5) else V4, rope.get("layer_type")
    if form == V5 and not row["reads_v5"] and V4 in reader.config:
        stated = ConfigReader(without(reader.config, {V5}))
        form, rope = V4, stated.layer_settings().get(str(layer_type), rope)
    if form == V4 and rope.get(ROPE_TYPE) and not rope.get("type") and SHORT in row:
        form = SHORT
    layers = row.get(form, {})
    outcomes = {**layers.get("", {}), **layers.get(layer_type, {})}  # what fails has no layers
    name = _kind(rope)
    outcome = outcomes.get("default" if name == "mrope" else name, outcomes.get(ANY))
    if outcome is None:
        raise Unsupported(
            f"how mlx-lm's class of {shortened(kind)} reads rope type {shortened(name)}, stated in "
            f"{form}, was not measured; run the model there to see"
        )
    return str(outcome), form, rope


def _growth(factor: float, rope: Config, key: str, default: float) -> float:
    """YaRN's attention factor, as its authors compute it."""
    mscale = real_number(rope.get(key, default), key)
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _row(model_type: str) -> dict[str, Any] | None:
    """The measured row of a model type, or of the one whose class serves it."""
    table = table_in(TABLE)
    served: str = table["served_as"].get(model_type, model_type)
    row: dict[str, Any] | None = table["types"].get(served)
    return row


RUNTIMES = (MlxLm(),)
