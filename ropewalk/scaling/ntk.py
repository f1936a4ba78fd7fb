"""NTK-aware scaling: a larger base, chosen so that the slowest pair turns exactly s times slower.

base′ = base · s^(d/(d-2)), that is λᵢ = s^(2i/(d-2)): the fastest pair keeps its frequency, the
slowest is interpolated fully, and those between share the stretch.
"""

from __future__ import annotations

from ropewalk.scaling import ntk_exponents, scale_of, scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=True, monotone=True)
def schedule(start: RotarySchedule, target_length: int) -> RotarySchedule:
    s = scale_of(start, target_length)
    return start.rescaled(s ** ntk_exponents(start), target_length)
