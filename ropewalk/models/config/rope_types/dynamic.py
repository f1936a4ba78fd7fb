"""Rope type `dynamic`: a base for every length, as a ladder of doublings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep, ladder
from ropewalk.models.config.rope_types import ntk_alpha
from ropewalk.models.lengths import extended
from ropewalk.scaling import doublings, dynamic_ntk

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    """The doublings up to f·L₀: transformers computes a base for every length."""
    if setting.rope.get("alpha") is not None:
        return ntk_alpha.steps(setting)
    factor = setting.factor()
    original = setting.original_length or setting.stated_length
    plain = setting.plain(original)
    at = partial(dynamic_ntk.schedule, factor=factor)
    reach = extended(original, max(factor, 2.0))
    target = setting.stated_length if setting.stated_length > original else reach
    return ladder(at, plain, doublings(original, target))
