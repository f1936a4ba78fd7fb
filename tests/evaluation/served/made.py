"""A fingerprint of the bundled model, and the file that llama.cpp serves, made once a process."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import ropewalk as rw
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.evaluation.served.fingerprint import Fingerprint
from ropewalk.exporting.llama_cpp import export
from ropewalk.models.config import BUNDLED
from ropewalk.schedule import RotarySchedule
from tests.gguf.gguf_cases import unproven

TARGET = 1024


@cache
def plan() -> ContextPlan:
    return rw.plan(BUNDLED, TARGET, "yarn").plan


@cache
def fingerprint() -> Fingerprint:
    return rw.fingerprint(BUNDLED, plan=plan())


def gguf(
    path: Path, schedule: RotarySchedule | None = None, dtype: str = "F32", length: int = TARGET
) -> Path:
    """The bundled model under a schedule, or under the plan."""
    served = replace(schedule or plan().longest(), length=length)
    steps = {FULL_ATTENTION: (PlanStep(length, served),)}
    unproven(export)(BUNDLED, ContextPlan(BUNDLED, steps), path, dtype=dtype)
    return path


def plain() -> RotarySchedule:
    return RotarySchedule.plain(plan().longest().geometry)
