from __future__ import annotations

import math

import numpy as np
import pytest

from ropewalk.theory.asymptote import EULER_GAMMA, asymptotic_base, cosine_integral, first_zero
from ropewalk.theory.bound import infima
from ropewalk.theory.published import LENGTHS, MEN_2024, SU_2024, published


@pytest.mark.parametrize("x", [0.01, 0.6, 1.0, 3.0, 7.5])
def test_cosine_integral_is_its_integral(x: float) -> None:
    """Ci(x) = γ + ln x + ∫₀ˣ (cos t − 1)/t dt, here by the midpoint rule."""
    t = (np.arange(200_000) + 0.5) * (x / 200_000)
    integral = float(((np.cos(t) - 1) / t).mean() * x)
    assert cosine_integral(x) == pytest.approx(EULER_GAMMA + math.log(x) + integral, abs=1e-9)


def test_first_zero() -> None:
    assert first_zero() == pytest.approx(0.6165, abs=5e-5)
    assert abs(cosine_integral(first_zero())) < 1e-14


def test_series_is_refused_where_it_cancels() -> None:
    with pytest.raises(ValueError, match="0 < x <= 8"):
        cosine_integral(0.0)


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
