"""CoPE: soft clipping of the slowest pairs, from the unchanged first to the last at a standstill.

arXiv 2602.05258: over the last n pairs, θᵢ is multiplied by ½(1 + cos(πk/(n-1))), k = 0 … n-1. The
paper's code takes n = 20 of 64 pairs, after a new base and training at 64k. Here n counts, unless
given, the pairs whose plain wavelength exceeds the reference length: another head size needs
another number, and these are the pairs whose angles are new beyond that length. It composes after
any method, as in `yarn+cope`, and the total factor of the last pair is the cap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ropewalk.errors import Unsupported
from ropewalk.scaling import scaling_method
from ropewalk.schedule import MAX_FACTOR, RotarySchedule
from ropewalk.untrusted import check_between


@scaling_method(identity_at_one=False, monotone=True)
def schedule(
    start: RotarySchedule, target_length: int, *, pairs: int | None = None
) -> RotarySchedule:
    plain, turning = start.geometry.plain_frequencies, start.geometry.turning_pairs
    if pairs is None:
        periods = 2 * np.pi / plain[:turning]
        pairs = int(np.count_nonzero(periods > start.geometry.original_length))
        if not pairs:
            raise Unsupported(
                "cope has nothing to clip: every pair completes a turn within "
                f"{start.geometry.original_length} positions; set the number of pairs to clip "
                "(`pairs`), or choose another method"
            )
    check_between(pairs, 1, turning, "pairs", "the paper clips 20 of 64")
    factors = start.rescale_factors.copy()
    taper = 0.5 * (1 + np.cos(np.pi * np.arange(pairs - 1) / max(pairs - 1, 1)))
    factors[turning - pairs : turning - 1] /= taper
    factors[turning - 1] = MAX_FACTOR
    return replace(start, rescale_factors=np.minimum(factors, MAX_FACTOR), length=target_length)
