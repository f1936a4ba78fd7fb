"""NTK-RoPE-mixed: a mixture of bases, which slows the fast pairs more than a single base would.

If pairs are read as the digits of a number, each digit may have its own base. With
λᵢ = exp(a (i+1)^b) and a = ln s / (d/2)^b, the bases fall from the first digit to the last, and
their product is s. b = 1 is `ntk_fixed`, b = 0 is `linear`; 0.625 is the value the authors found
best.
"""

from __future__ import annotations

import math

import numpy as np

from ropewalk.errors import InvalidValue
from ropewalk.scaling import scale_of, scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=True, monotone=True)
def schedule(start: RotarySchedule, target_length: int, *, b: float = 0.625) -> RotarySchedule:
    if not 0 <= b <= 1:
        raise InvalidValue(
            "b", b, "must lie between 0 (linear) and 1 (ntk_fixed)", "the usual value is 0.625"
        )
    s = scale_of(start, target_length)
    share = (np.arange(1, start.geometry.pairs + 1) / start.geometry.pairs) ** b
    return start.rescaled(np.exp(math.log(s) * share), target_length)
