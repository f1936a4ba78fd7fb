"""Rope type `longrope`: a list of factors for short texts, and one for long ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue
from ropewalk.scaling import log_growth, longrope

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    factor, lengths, plain = setting.scaled()
    original, length = lengths.reference, lengths.served
    attention = setting.number("attention_factor")
    if attention is None:
        attention = 1.0
        if factor > 1 and original == 1:
            raise InvalidValue(
                "original_length", original, "leaves longrope's attention factor undefined",
                "correct it, or state attention_factor",
            )  # fmt: skip
        if factor > 1:
            attention = math.sqrt(1 + math.log(factor) / math.log(original))
    softmax = 1.0
    if setting.keys.family.softmax_mscale and setting.number("mscale_all_dim"):
        softmax = log_growth(factor, setting.number("mscale_all_dim") or 0.0) ** 2

    def step(name: str, up_to_length: int) -> PlanStep:
        factors = setting.rope.get(f"{name}_factor")
        if not isinstance(factors, list):
            raise InvalidValue(
                f"{setting.place}.{name}_factor", factors, "must be a list of numbers", "add it"
            )
        scaling = attention
        if setting.keys.model_type == "phimoe":  # the one family whose own code reads these
            stated = setting.number(f"{name}_mscale")
            scaling = attention if stated is None else stated
        try:
            schedule = longrope.schedule(
                plain,
                lengths.trained if up_to_length == length else up_to_length,
                factors=factors,
                attention_factor=scaling,
            )
        except InvalidValue as error:
            key = error.key.replace("rescale_factors", f"{name}_factor")
            key = key.replace("factors", f"{name}_factor") if key.startswith("factors") else key
            if key == "attention_scaling":
                mscale = f"{name}_mscale"
                key = "attention_factor" if setting.rope.get(mscale) is None else mscale
            raise InvalidValue(
                f"{setting.place}.{key}", error.value, error.rule, error.remedy
            ) from None
        return PlanStep(up_to_length, replace(schedule, softmax_scaling=softmax))

    long = step("long", length)
    if setting.rope.get("short_factor") == setting.rope.get("long_factor"):
        return (long,)
    short = step("short", original)
    return (short, long) if length > original else (short,)  # none is long enough for the others
