"""Two bands: a new base for the pairs before a split, linear interpolation from the split on.

"Method 2" of the base-bound paper, generalised. Without a `base`, the first band's is chosen so
that the bands meet: λᵢ = s^(i/split). Without a `split`, it is the first pair that does not
complete a turn within the length that the start serves, and the factors are those of `longrope2`.
"""

from __future__ import annotations

import numpy as np

from ropewalk.scaling import base_change, scale_of, scaling_method
from ropewalk.schedule import RotarySchedule
from ropewalk.untrusted import check_between


@scaling_method(identity_at_one=True, monotone=True)
def schedule(
    start: RotarySchedule,
    target_length: int,
    *,
    split: int | None = None,
    base: float | None = None,
) -> RotarySchedule:
    pairs = start.geometry.pairs
    if split is None:
        split = int(np.count_nonzero(start.wavelengths <= start.length))
    check_between(split, 0, pairs, "split", "44 in the paper", f"{pairs} pairs")
    s = scale_of(start, target_length)
    index = np.arange(pairs)
    if base is None:
        fast = s ** np.minimum(index / max(split, 1), 1)
    else:
        rebased = base_change.schedule(start, target_length, base=base)
        fast = rebased.rescale_factors / start.rescale_factors
    return start.rescaled(np.where(index < split, fast, s), target_length)
