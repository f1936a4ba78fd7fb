"""Rope type `yarn`: a ramp between unscaled and fully scaled pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep
from ropewalk.scaling import yarn
from ropewalk.untrusted import truth_value

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    factor, lengths, plain = setting.scaled()
    truncate = truth_value(setting.rope.get("truncate", True), f"{setting.place}.truncate")
    schedule = yarn.schedule(
        plain,
        lengths.trained,
        beta_fast=setting.number("beta_fast") or 32.0,
        beta_slow=setting.number("beta_slow") or 1.0,
        truncate=truncate,
        attention_factor=setting.number("attention_factor"),
        mscale=setting.number("mscale"),
        mscale_all_dim=setting.number("mscale_all_dim"),
        scale_softmax=setting.keys.family.softmax_mscale,
        factor=factor,
    )
    return (PlanStep(lengths.served, schedule),)
