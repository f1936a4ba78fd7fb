"""Dynamic NTK: NTK scaling by the current length, so that short sequences keep the plain angles.

For a sequence of L tokens, base′ = base · (f·L/L₀ - (f-1))^(d/(d-2)) with a factor f that is
independent of the target. A schedule does not depend on the current length, so this one is for
L = target_length; `context_plan.ladder` calls it at rising lengths.
"""

from __future__ import annotations

from ropewalk.errors import InvalidValue
from ropewalk.scaling import ntk_exponents, scale_of, scaling_method
from ropewalk.schedule import MAX_FACTOR, RotarySchedule


@scaling_method(identity_at_one=True, monotone=True, by_length=True)
def schedule(start: RotarySchedule, target_length: int, *, factor: float = 1.0) -> RotarySchedule:
    if not 1 <= factor <= MAX_FACTOR:
        raise InvalidValue(
            "factor",
            factor,
            f"must be at least 1 and at most {MAX_FACTOR:g}",
            "1 scales by L/L₀ itself",
        )
    # f·s - (f-1), in the order that is exactly 1 at s = 1
    growth = 1 + factor * (scale_of(start, target_length) - 1)
    return start.rescaled(growth ** ntk_exponents(start), target_length)
