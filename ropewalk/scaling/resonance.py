"""Resonance RoPE: wavelengths rounded to whole positions, on top of any schedule.

Wang et al. 2024. A pair whose wavelength is a whole number meets the same angles in each turn, so
positions beyond the trained length give it no new angles. It does not extend by itself: apply it at
the length that another method has reached, as in `yarn+resonance`.
"""

from __future__ import annotations

import numpy as np

from ropewalk.errors import InvalidValue
from ropewalk.scaling import scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=False, monotone=False)
def schedule(start: RotarySchedule, target_length: int) -> RotarySchedule:
    if target_length != start.length:
        raise InvalidValue(
            "target_length",
            target_length,
            f"resonance does not extend, and the model serves {start.length}",
            "apply it after a method that does: yarn+resonance",
        )
    whole = np.maximum(np.round(start.wavelengths), 1)
    turning = np.isfinite(start.wavelengths)
    factors = np.divide(whole, start.wavelengths, where=turning, out=np.ones_like(whole))
    return start.rescaled(factors, target_length)
