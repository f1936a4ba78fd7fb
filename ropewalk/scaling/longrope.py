"""LongRoPE: explicit factors, one for each pair, as from a search, with n̂ kept initial positions.

Ding et al. 2024. The attention scaling is sqrt(1 + ln s / ln L₀) unless given. With `recover` the
target may lie below the length that the start serves: factors for short sequences on an extended
model, whose attention scaling is then left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ropewalk.errors import InvalidValue
from ropewalk.scaling import scale_of, scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=False, monotone=False)
def schedule(
    start: RotarySchedule,
    target_length: int,
    *,
    factors: Sequence[float],
    attention_factor: float | None = None,
    kept_initial_positions: int | None = None,
    recover: bool = False,
) -> RotarySchedule:
    s = scale_of(start, target_length)
    if attention_factor is None:
        if s > 1 and start.length == 1:
            raise InvalidValue(
                "attention_factor", None, "its formula divides by ln L₀, and L₀ is 1", "give it"
            )
        attention_factor = 1.0 if s <= 1 else math.sqrt(1 + math.log(s) / math.log(start.length))
    extended = start.rescaled(factors, target_length, attention_scaling=attention_factor)
    if kept_initial_positions is None:
        return extended
    return replace(extended, kept_initial_positions=kept_initial_positions)
