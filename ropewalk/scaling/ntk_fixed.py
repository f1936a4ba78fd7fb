"""NTK-RoPE-fixed: a single larger base; all wavelengths grow, the shortest included.

Eq. 5 of the mixture-of-bases article: λᵢ = s^(2(i+1)/d). Unlike `ntk_old`, the slowest pair is
stretched by s in full, and the fastest by s^(2/d).
"""

from __future__ import annotations

from ropewalk.scaling import ntk_mixed, scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=True, monotone=True)
def schedule(start: RotarySchedule, target_length: int) -> RotarySchedule:
    return ntk_mixed.schedule(start, target_length, b=1.0)
