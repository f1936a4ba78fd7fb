"""Llama 3.1's scaling: fast pairs are kept and slow pairs interpolated, by wavelength.

A pair that turns more than `high_freq_factor` times within the length that the start serves keeps
its frequency, one that turns less than `low_freq_factor` times is slowed by s, and between the two
the frequency moves linearly with the number of turns. Attention is not scaled.
"""

from __future__ import annotations

import numpy as np

from ropewalk.errors import InvalidValue
from ropewalk.scaling import scale_of, scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=True, monotone=True)
def schedule(
    start: RotarySchedule,
    target_length: int,
    *,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    factor: float | None = None,
) -> RotarySchedule:
    if not 0 < low_freq_factor <= high_freq_factor:
        raise InvalidValue(
            "high_freq_factor",
            high_freq_factor,
            f"must be at least low_freq_factor = {low_freq_factor:g}, and both above 0",
            "the usual values are 4 and 1",
        )
    s = scale_of(start, target_length, factor)
    turns = start.length / start.wavelengths
    if low_freq_factor == high_freq_factor:  # a step instead of a ramp, as in Llama 4
        kept = np.where(turns >= low_freq_factor, 1.0, 0.0)
    else:
        kept = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    return start.rescaled(1 / (kept + (1 - kept) / s), target_length)
