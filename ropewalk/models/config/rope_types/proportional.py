"""Rope type `proportional`: plain or linear, over a geometry whose slowest pairs rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep
from ropewalk.models.config.rope_types import default, linear

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    factor = setting.number("factor")
    return default.steps(setting) if factor in (None, 1) else linear.steps(setting)
