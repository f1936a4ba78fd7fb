"""Rope type `linear`: all positions divided by one factor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep
from ropewalk.scaling import linear

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    factor, own, plain = setting.scaled()
    return (PlanStep(own.served, linear.schedule(plain, own.trained, factor=factor)),)
