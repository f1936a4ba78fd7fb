"""Linear interpolation: every pair turns s times slower, so no angle is new.

Chen et al. 2023 (position interpolation): λᵢ = s. The fast pairs, which distinguish neighbouring
positions, are slowed as much as the slow ones; the other methods avoid this.
"""

from __future__ import annotations

import numpy as np

from ropewalk.scaling import scale_of, scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=True, monotone=True)
def schedule(
    start: RotarySchedule, target_length: int, *, factor: float | None = None
) -> RotarySchedule:
    s = scale_of(start, target_length, factor)
    return start.rescaled(np.full(start.geometry.pairs, s), target_length)
