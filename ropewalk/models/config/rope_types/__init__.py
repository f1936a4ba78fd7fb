"""The rope types of transformers' configs, one per file: `steps(setting)` reads its setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep
from ropewalk.models.config.rope_types import (
    default,
    dynamic,
    linear,
    llama3,
    longrope,
    proportional,
    yarn,
)

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting

ROPE_TYPES: dict[str, Callable[[RopeSetting], tuple[PlanStep, ...]]] = {
    "default": default.steps,
    "linear": linear.steps,
    "dynamic": dynamic.steps,
    "yarn": yarn.steps,
    "llama3": llama3.steps,
    "longrope": longrope.steps,
    "proportional": proportional.steps,
}
"""By the name that a setting gives; what Hunyuan calls dynamic is in ntk_alpha.py."""
