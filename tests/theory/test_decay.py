from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InvalidValue
from ropewalk.schedule import FloatArray, RotaryGeometry, RotarySchedule
from ropewalk.theory.bound import infima
from ropewalk.theory.decay import decay, pair_weights, score_bound, similarity_advantage

LLAMA2 = RotaryGeometry(128, 128, 10_000.0, 4096)


def plain(
    base: float = 10_000.0, head_dim: int = 128, rotary_dim: int | None = None
) -> RotarySchedule:
    return RotarySchedule.plain(RotaryGeometry(head_dim, rotary_dim or head_dim, base, 4096))


@st.composite
def schedules(draw: st.DrawFn) -> RotarySchedule:
    rotary = 2 * draw(st.integers(1, 24))
    head = rotary + 2 * draw(st.integers(0, 8))
    geometry = RotaryGeometry(head, rotary, draw(st.floats(2, 1e8)), 512)
    count = geometry.pairs
    factors = draw(st.lists(st.floats(0.5, 64), min_size=count, max_size=count))
    return RotarySchedule(
        geometry, np.array(factors), 512, attention_scaling=draw(st.floats(0.5, 2))
    )


def test_table_4() -> None:
    """Two methods from 4k to 32k without new angles: one keeps B(m) >= 0, the other does not."""
    method_1 = RotarySchedule.plain(RotaryGeometry(128, 128, 5e6, 4096))
    i = np.arange(64)
    frequencies = np.where(i >= 44, 1e4 ** (-i / 64) / 8, (1e4 * 8 ** (128 / 88)) ** (-i / 64))
    method_2 = RotarySchedule(LLAMA2, LLAMA2.plain_frequencies / frequencies, 32768)
    assert [decay(method_1, k * 1024).violations for k in (15, 30)] == [0, 0]
    assert [decay(method_2, k * 1024).violations for k in (15, 30)] == [97, 2554]


@given(schedule=schedules(), length=st.integers(1, 3000))
def test_the_fast_sum_is_the_obvious_one(schedule: RotarySchedule, length: int) -> None:
    values = similarity_advantage(schedule, np.arange(length))
    result = decay(schedule, length)
    clear = np.abs(values).min() > 1e-9  # a sum that is zero but for rounding has no sign
    if clear:
        assert result.violations == (values < 0).sum()
        expected = int(np.argmax(values < 0)) if (values < 0).any() else None
        assert result.first_violation == result.effective_length == expected
    assert result.least == pytest.approx(values.min() / values[0], abs=1e-9)


@given(schedule=schedules())
def test_no_distance_beats_no_distance(schedule: RotarySchedule) -> None:
    values = similarity_advantage(schedule, np.arange(100))
    assert values[0] == pytest.approx(pair_weights(schedule).sum())
    assert values.max() <= values[0] * (1 + 1e-12)


@given(half=st.integers(1, 128), base=st.floats(1.5, 1e9))
def test_at_distance_zero_it_counts_the_pairs(half: int, base: float) -> None:
    assert similarity_advantage(plain(base, 2 * half), 0) == pytest.approx(half)


@given(
    scale=st.floats(1, 64),
    distances=st.lists(st.floats(0, 1e5), min_size=1),
    base=st.floats(2, 1e8),
)
def test_linear_interpolation_stretches_the_curve(
    scale: float, distances: list[float], base: float
) -> None:
    start = plain(base)
    stretched = start.rescaled(np.full(64, scale), 4096)
    found = similarity_advantage(stretched, distances)
    expected = similarity_advantage(start, np.array(distances) / scale)
    np.testing.assert_allclose(found, expected, atol=1e-8)


@given(
    quarter=st.integers(1, 32),
    base=st.floats(1.5, 1e8),
    factors=st.data(),
)
def test_half_at_rest_is_never_negative(quarter: int, base: float, factors: st.DataObject) -> None:
    """Su: 1 + cos is not negative, so half the pairs at rest settle it for every schedule."""
    geometry = RotaryGeometry(4 * quarter, 2 * quarter, base, 512)
    count = geometry.pairs
    given_factors = factors.draw(st.lists(st.floats(0.1, 100), min_size=count, max_size=count))
    schedule = RotarySchedule(geometry, np.array(given_factors), 512)
    result = decay(schedule, 5000)
    assert result.least >= -1e-12


def test_the_effective_length_is_the_other_side_of_the_bound() -> None:
    for least in infima(128, [1024, 2048]):
        below = decay(plain(least.low * (1 - 1e-7)), least.length)
        above = decay(plain(least.high), least.length)
        assert below.first_violation == least.witness
        assert above.first_violation is None
        assert above.violations == 0


def test_weights_of_one_change_nothing_and_others_do() -> None:
    start = plain()
    assert decay(start, 8192, np.ones(64)) == decay(start, 8192)
    slow_only = np.r_[np.zeros(32), np.ones(32)]
    assert decay(start, 4096, slow_only).violations < decay(start, 8192).violations
    assert decay(start, 512, slow_only).first_violation is None


def test_attention_scaling_counts_only_beside_pairs_at_rest() -> None:
    full = plain().rescaled(np.ones(64), 4096, attention_scaling=1.2)
    assert decay(full, 8192) == decay(plain(), 8192)
    partial = plain(head_dim=128, rotary_dim=96)
    louder = partial.rescaled(np.ones(48), 4096, attention_scaling=1.2)
    assert decay(louder, 8192).least < decay(partial, 8192).least


@pytest.mark.parametrize(
    "variances", [np.ones(63), -np.ones(64), np.zeros(64), np.full(64, np.nan)]
)
def test_bad_variances_are_refused(variances: FloatArray) -> None:
    with pytest.raises(InvalidValue, match="variances"):
        decay(plain(), 100, variances)


def test_no_length_is_refused() -> None:
    with pytest.raises(InvalidValue, match="length"):
        decay(plain(), 0)


@given(
    schedule=schedules(),
    distance=st.integers(0, 4000),
    seed=st.integers(0, 2**32 - 1),
)
def test_score_bound_bounds_scores(schedule: RotarySchedule, distance: int, seed: int) -> None:
    """Eq. 14 against the rotated product of random vectors, pair by pair."""
    rng = np.random.default_rng(seed)
    pairs = schedule.geometry.head_dim // 2
    query, key = rng.normal(size=(2, pairs)) + 1j * rng.normal(size=(2, pairs))
    turning = schedule.geometry.pairs
    angles = np.r_[distance * schedule.inverse_frequencies, np.zeros(pairs - turning)]
    products = query * key.conj()
    score = float((products * np.exp(1j * angles)).real.sum())
    steepest = np.abs(np.diff(np.r_[products, 0])).max()
    assert abs(score) <= steepest * score_bound(schedule, distance) * (1 + 1e-9)


def test_score_bound_at_zero_is_the_sum_of_the_first_numbers() -> None:
    assert score_bound(plain(), 0) == pytest.approx(64 * 65 / 2)


def test_attention_scaling_counts_squared_beside_dimensions_at_rest() -> None:
    """cos and sin hold m on both sides of a product, and dimensions at rest do not."""
    geometry = RotaryGeometry(16, 12, 10_000.0, 512)
    scaled = RotarySchedule(geometry, np.ones(6), 512, attention_scaling=2.0)
    assert pair_weights(scaled).tolist() == [1.0] * 6 + [0.25] * 2
