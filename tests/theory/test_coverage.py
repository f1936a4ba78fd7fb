from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InvalidValue
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.theory.coverage import TURN, coverage, critical_dimension, critical_pair

geometries = st.builds(
    lambda half, base, length: RotaryGeometry(2 * half, 2 * half, base, length),
    st.integers(1, 64),
    st.floats(1.5, 1e7),
    st.integers(64, 8192),
)


@given(geometry=geometries)
def test_the_trained_length_holds_nothing_new(geometry: RotaryGeometry) -> None:
    plain = RotarySchedule.plain(geometry)
    found = coverage(plain, geometry.original_length)
    assert found.out_of_distribution == ()
    assert found.out_of_distribution_share == 0


@given(geometry=geometries, scale=st.integers(2, 64))
def test_linear_interpolation_holds_nothing_new(geometry: RotaryGeometry, scale: int) -> None:
    plain = RotarySchedule.plain(geometry)
    target = geometry.original_length * scale
    stretched = plain.rescaled(np.full(geometry.pairs, scale), target)
    assert coverage(stretched, target).out_of_distribution == ()


@given(geometry=geometries, scale=st.integers(2, 64))
def test_without_scaling_the_critical_pair_is_the_first_new_one(
    geometry: RotaryGeometry, scale: int
) -> None:
    plain = RotarySchedule.plain(geometry)
    found = coverage(plain, geometry.original_length * scale)
    critical = critical_pair(plain)
    expected = () if critical is None else tuple(range(critical, geometry.pairs))
    assert found.out_of_distribution == expected
    assert ((found.new_share >= 0) & (found.new_share < 1)).all()


@given(geometry=geometries, scale=st.floats(1.1, 20))
def test_new_share_counts_distances(geometry: RotaryGeometry, scale: float) -> None:
    target = int(geometry.original_length * scale) + 1
    plain = RotarySchedule.plain(geometry)
    found = coverage(plain, target)
    middles = (np.arange(50_000) + 0.5) * (target / 50_000)
    slow = geometry.pairs - 1
    angles = middles * plain.inverse_frequencies[slow] % TURN
    counted = (angles > found.seen[slow]).mean() if found.seen[slow] < TURN else 0.0
    assert found.new_share[slow] == pytest.approx(counted, abs=2e-3)


def test_what_has_been_trained_counts_as_seen() -> None:
    geometry = RotaryGeometry(128, 128, 1e4, 4096)
    plain = RotarySchedule.plain(geometry)
    longer = RotarySchedule(geometry, np.ones(64), 32768)
    assert coverage(plain, 32768).out_of_distribution
    assert coverage(plain, 32768, trained=longer).out_of_distribution == ()


@pytest.mark.parametrize(
    ("head_dim", "base", "length"), [(128, 5e5, 8192), (96, 1e4, 4096), (128, 1e4, 4096)]
)
def test_critical_dimension_is_longrope2s(head_dim: int, base: float, length: int) -> None:
    expected = 2 * math.ceil(head_dim / 2 * math.log(length / TURN) / math.log(base))
    plain = RotarySchedule.plain(RotaryGeometry(head_dim, head_dim, base, length))
    assert critical_dimension(plain) == expected


def test_a_tiny_base_turns_every_pair() -> None:
    """Base 500 at 4k (Fig. 2b): nothing is ever new."""
    plain = RotarySchedule.plain(RotaryGeometry(128, 128, 500, 4096))
    assert critical_pair(plain) is None
    assert critical_dimension(plain) is None
    assert coverage(plain, 2**20).out_of_distribution == ()


def test_no_length_is_refused() -> None:
    with pytest.raises(InvalidValue, match="length"):
        coverage(RotarySchedule.plain(RotaryGeometry(128, 128, 1e4, 4096)), 0)
