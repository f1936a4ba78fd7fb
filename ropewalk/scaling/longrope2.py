"""LongRoPE2: λ = s from the critical pair on, and below it NTK with the base that meets s there.

Shang et al. 2025 (arXiv 2502.20082), without its search: in `search --beyond-critical` its
constraint bounds the search. Unless given, the critical pair is the theory's: the first, counted
from 0, without a full turn in the length that the start serves, ⌈(d/2)·log_b(L/2π)⌉. The paper's
search finds real ones before it: 25 for 31 in Phi3-mini, 30 for 35 in LLaMA3-8B. That search also
lets λ reach 2s: a `factor` takes the place of s.
"""

from __future__ import annotations

import numpy as np

from ropewalk.scaling import scale_of, scaling_method
from ropewalk.schedule import RotarySchedule
from ropewalk.untrusted import check_between


@scaling_method(identity_at_one=True, monotone=True)
def schedule(
    start: RotarySchedule,
    target_length: int,
    *,
    critical_pair: int | None = None,
    factor: float | None = None,
) -> RotarySchedule:
    pairs = start.geometry.pairs
    if critical_pair is None:
        critical_pair = int(np.count_nonzero(start.wavelengths <= start.length))
    remedy = "the paper's are 25 of 48 and 30 of 64"
    check_between(critical_pair, 0, pairs, "critical_pair", remedy, f"{pairs} pairs")
    below = np.minimum(np.arange(pairs) / max(critical_pair, 1), 1)
    exponents = below if critical_pair else np.ones(pairs)
    return start.rescaled(scale_of(start, target_length, factor) ** exponents, target_length)
