"""Two closed forms next to the computed bound, both of Su's articles.

**Infinitely many pairs.** As d → ∞ the mean of the cosines becomes an integral over the exponent s,
and t = m·b^(−s) makes it (Ci(m) − Ci(m/b)) / ln b with the cosine integral Ci(x) = −∫ₓ^∞ cos t / t
dt. Ci(m) is small for m ≥ 1, so the sign is that of −Ci(m/b): positive until m/b reaches Ci's first
zero x₀ = 0.6165…. Hence b ≥ L / x₀. A finite head has too few pairs to average out and needs far
more.

**Digits.** With β = b^(2/d), pair i turns by n/βⁱ, and digit i + 1 of n in base β is ⌊n/βⁱ⌋ mod β:
both go through their values once while n grows by a factor β more than for the pair before. So d/2
pairs write the numbers below β^(d/2) = b, and L positions need b ≥ L.
"""

from __future__ import annotations

import cmath
import math
from functools import cache

EULER_GAMMA = 0.5772156649015329
_TERMS = 60
"""Enough for 1e-15 above 8."""


def cosine_integral(x: float) -> float:
    """Ci(x) for x > 0: up to 8 by γ + ln x + Σ (−x²)ᵏ / (2k·(2k)!), above by a continued fraction.

    There Ci(x) = −Re E₁(ix) with E₁(z) = exp(−z) / (z + 1 − 1²/(z + 3 − 2²/(z + 5 − …))).
    """
    if x > 8:
        z = complex(0, x)
        below = z + 2 * _TERMS + 1
        for k in range(_TERMS, 0, -1):
            below = z + 2 * k - 1 - k * k / below
        return -(cmath.exp(-z) / below).real
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


def mean_of_infinitely_many(distance: int, base: float) -> float:
    """(Ci(m) − Ci(m/b)) / ln b: what B(m) of m ≥ 1 is per pair as pairs grow in number."""
    return (cosine_integral(distance) - cosine_integral(distance / base)) / math.log(base)


def digits(position: int, base: float, pairs: int) -> list[int]:
    """The digits of a position in base β = b^(1/pairs), the lowest first (Su 2023, eq. 1).

    If β is whole, all positions below b differ in them.
    """
    beta = base ** (1 / pairs)
    return [int(position / beta**i % beta) for i in range(pairs)]
