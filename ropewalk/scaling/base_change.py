"""Base change: a new base, λᵢ = (base/b)^(2i/d), as in ABF and in most continued pre-training.

The bound of the theory says how large it must be for a length. A smaller base is allowed: it avoids
new angles too, but then random keys beat similar ones (the base-bound paper).
"""

from __future__ import annotations

import numpy as np

from ropewalk.errors import InvalidValue
from ropewalk.scaling import scaling_method
from ropewalk.schedule import MAX_BASE, RotarySchedule


@scaling_method(identity_at_one=False, monotone=False, geometric_start=True)
def schedule(start: RotarySchedule, target_length: int, *, base: float) -> RotarySchedule:
    present = start.geometric_base
    assert present is not None  # geometric_start
    if not 1 < base <= MAX_BASE:
        raise InvalidValue(
            "base",
            base,
            f"must be above 1 and at most {MAX_BASE:g}",
            f"give more than the present {present:g}; `ropewalk bound` shows how much more",
        )
    exponents = np.arange(start.geometry.pairs) * (2.0 / start.geometry.rotary_dim)
    return start.rescaled((base / present) ** exponents, target_length)
