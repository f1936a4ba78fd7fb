"""Rope type `linear`: all positions divided by one factor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep
from ropewalk.scaling import linear

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    factor, lengths, plain = setting.scaled()
    return (PlanStep(lengths.served, linear.schedule(plain, lengths.trained, factor=factor)),)
