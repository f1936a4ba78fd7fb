"""The closed form next to the computed bound: that of infinitely many pairs.

As d → ∞ the mean of the cosines becomes an integral over the exponent s, and t = m·b^(−s) makes it
(Ci(m) − Ci(m/b)) / ln b with the cosine integral Ci(x) = −∫ₓ^∞ cos t / t dt. Ci(m) is small for
m ≥ 1, so the sign is that of −Ci(m/b): positive until m/b reaches Ci's first zero x₀ = 0.6165….
Hence b ≥ L / x₀ (Su). A finite head has too few pairs to average out and needs far more.
"""

from __future__ import annotations

import math
from functools import cache

EULER_GAMMA = 0.5772156649015329


def cosine_integral(x: float) -> float:
    """Ci(x) for 0 < x ≤ 8, by γ + ln x + Σ (−x²)ᵏ / (2k·(2k)!)."""
    if not 0 < x <= 8:
        raise ValueError(f"the series of Ci is used for 0 < x <= 8, not {x}")
    total = EULER_GAMMA + math.log(x)
    power = 1.0
    for k in range(1, 40):
        power *= -x * x / ((2 * k - 1) * (2 * k))
        total += power / (2 * k)
    return total


@cache
def first_zero() -> float:
    """x₀: Ci rises through it from −∞ at 0."""
    low, high = 0.1, 1.5  # Ci rises up to π/2
    while low < (middle := 0.5 * (low + high)) < high:
        if cosine_integral(middle) < 0:
            low = middle
        else:
            high = middle
    return low


def asymptotic_base(length: int) -> float:
    """L / x₀, about 1.62 L: the bound of infinitely many pairs."""
    return length / first_zero()
