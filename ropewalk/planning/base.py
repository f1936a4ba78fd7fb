"""The base that a length needs: the default of `base_change`."""

from __future__ import annotations

import math

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InvalidValue
from ropewalk.lengths import format_length
from ropewalk.theory.bound import Progress, silent
from ropewalk.theory.table import safe_base

LONGEST = 2**20
"""Of the table, where most heads are. The time grows with the square of the length."""


def sufficient_base(
    present: ContextPlan,
    target_length: int,
    layer_type: str,
    *,
    from_original: bool = False,
    progress: Progress = silent,
) -> float:
    """A base that the length is safe with, rounded up to three digits; never below the present."""
    if target_length > LONGEST:
        raise InvalidValue(
            "base",
            None,
            f"must be given beyond {format_length(LONGEST)}: to find a safe one takes hours",
            "choose one; `ropewalk bound` finds it",
        )
    schedule = present.longest(layer_type)
    geometry, turning = schedule.geometry, schedule.geometry.without_resting_pairs
    safe = safe_base(
        turning.head_dim, target_length, rotary_dim=turning.rotary_dim, progress=progress
    )
    # The same frequencies, over the whole head again.
    needed = safe.value ** (geometry.rotary_dim / turning.rotary_dim)
    now = geometry.base if from_original else schedule.geometric_base
    return max(_rounded_up(needed), now or geometry.base)


def _rounded_up(base: float, digits: int = 3) -> float:
    """Every base above a safe one is safe, so rounding up costs nothing."""
    unit = 10.0 ** (math.floor(math.log10(base)) + 1 - digits)
    return math.ceil(base / unit) * unit
