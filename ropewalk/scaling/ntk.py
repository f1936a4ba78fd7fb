"""NTK-aware scaling: a larger base, chosen so that the slowest pair turns exactly s times slower.

base′ = base · s^(d/(d-2)) (Peng et al. 2023, Eq. 16), that is λᵢ = s^(2i/(d-2)): the fastest pair
keeps its frequency, the slowest is interpolated fully, and those between share the stretch. A
`base` takes the place of the start's first (Wang et al. 2024, Tables 2 and 4).
"""

from __future__ import annotations

from ropewalk.scaling import base_change, ntk_exponents, scale_of, scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=True, monotone=True)
def schedule(
    start: RotarySchedule, target_length: int, *, base: float | None = None
) -> RotarySchedule:
    s = scale_of(start, target_length)
    if base is not None:
        start = base_change.schedule(start, start.length, base=base)
    return start.rescaled(s ** ntk_exponents(start), target_length)
