"""Hunyuan's `alpha`, under the rope type `dynamic`: one base for all lengths.

The models are trained with it, so it is their plain base, whatever the factor says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue
from ropewalk.models.config.rope_types import default
from ropewalk.schedule import MAX_FACTOR
from ropewalk.untrusted import real_number

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    """The plain frequencies of α^(d/(d-2)) times the stated base."""
    alpha, key = setting.number("alpha"), f"{setting.place}.alpha"
    dim = setting.plain(setting.stated_length).geometry.rotary_dim
    if alpha is None or not 1 <= alpha <= MAX_FACTOR or dim < 4:
        raise InvalidValue(
            key, alpha, f"must be at least 1 and at most {MAX_FACTOR:g}", "correct it"
        )
    base = real_number(setting.rope["rope_theta"], "base") * alpha ** (dim / (dim - 2))
    return default.steps(replace(setting, rope={**setting.rope, "rope_theta": base}))
