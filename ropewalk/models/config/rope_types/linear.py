"""Rope type `linear`: all positions divided by one factor."""

from __future__ import annotations

from ropewalk.context_plan import PlanStep
from ropewalk.models.config.setting import RopeSetting
from ropewalk.scaling import linear


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    factor, own, plain = setting.scaled()
    return (PlanStep(own.served, linear.schedule(plain, own.trained, factor=factor)),)
