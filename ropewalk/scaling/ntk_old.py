"""NTK-RoPE-old: the base grows by s itself, so that even the slowest pair stays short of s.

Eq. 3 of the mixture-of-bases article: λᵢ = s^(2i/d), a base of base · s. The last pair reaches only
s^((d-2)/d), which is why `ntk` and `ntk_fixed` exist; it serves as their baseline.
"""

from __future__ import annotations

import numpy as np

from ropewalk.scaling import scale_of, scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=True, monotone=True)
def schedule(start: RotarySchedule, target_length: int) -> RotarySchedule:
    s = scale_of(start, target_length)
    exponents = np.arange(start.geometry.pairs) * (2.0 / start.geometry.rotary_dim)
    return start.rescaled(s**exponents, target_length)
