"""Rope type `default`: the plain frequencies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    lengths = setting.lengths()
    plain = setting.plain(lengths.reference)
    return (PlanStep(lengths.served, replace(plain, length=lengths.trained)),)
