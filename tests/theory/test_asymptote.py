from __future__ import annotations

import math

import numpy as np
import pytest

from ropewalk.theory.asymptote import (
    EULER_GAMMA,
    asymptotic_base,
    cosine_integral,
    digits,
    first_zero,
    mean_of_infinitely_many,
)
from ropewalk.theory.bound import infima
from ropewalk.theory.published import LENGTHS, MEN_2024, SU_2024, published


@pytest.mark.parametrize("x", [0.01, 0.6, 1.0, 3.0, 7.5, 8.5, 30.0])
def test_cosine_integral_is_its_integral(x: float) -> None:
    """Ci(x) = γ + ln x + ∫₀ˣ (cos t − 1)/t dt, here by the midpoint rule."""
    t = (np.arange(200_000) + 0.5) * (x / 200_000)
    integral = float(((np.cos(t) - 1) / t).mean() * x)
    assert cosine_integral(x) == pytest.approx(EULER_GAMMA + math.log(x) + integral, abs=1e-9)


def test_first_zero() -> None:
    assert first_zero() == pytest.approx(0.6165, abs=5e-5)
    assert abs(cosine_integral(first_zero())) < 1e-14


def test_the_series_and_the_continued_fraction_meet() -> None:
    assert cosine_integral(8.0) == pytest.approx(cosine_integral(8.0 + 1e-12), abs=1e-12)
    assert cosine_integral(8.0) == pytest.approx(0.12243388253200980, abs=1e-13)


@pytest.mark.parametrize("base", [500.0, 10_000.0, 500_000.0])
@pytest.mark.parametrize("distance", [1, 7, 300, 5_000, 40_000])
def test_the_mean_of_many_pairs_nears_its_closed_form(base: float, distance: int) -> None:
    exponents = (np.arange(2**20) + 0.5) / 2**20
    many = float(np.cos(distance * base**-exponents).mean())
    assert mean_of_infinitely_many(distance, base) == pytest.approx(many, abs=1e-6)


def test_digits_write_positions_below_the_base() -> None:
    assert digits(1234, 10_000, 4) == [4, 3, 2, 1]
    assert len({tuple(digits(n, 2**9, 9)) for n in range(2**9 + 1)}) == 2**9


def test_closed_forms_lie_below_the_bound() -> None:
    for least in infima(128, [1024, 4096]):
        assert least.length < asymptotic_base(least.length) < least.low


def test_published_tables() -> None:
    assert tuple(MEN_2024) == tuple(SU_2024) == LENGTHS
    assert all(SU_2024[length] <= MEN_2024[length] for length in LENGTHS)
    assert published(128, 8192) == {"men2024": 8.4e4, "su2024": 8.4e4}
    assert published(64, 8192) == {"men2024": None, "su2024": None}


def test_su_is_the_infimum_to_two_digits() -> None:
    for least in infima(128, [length for length in LENGTHS if length <= 32768]):
        assert f"{least.value:.1e}" == f"{SU_2024[least.length]:.1e}"
