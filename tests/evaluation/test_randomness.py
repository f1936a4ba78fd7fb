from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.evaluation.randomness import Stream, identity, spread


def test_draws_are_the_same_on_every_machine_and_version() -> None:
    """Recorded once: samples already scored must keep their meaning."""
    stream = Stream("passkey", 1, 0, 7)
    assert [stream.below(100_000) for _ in range(4)] == [18751, 88752, 11185, 70313]
    assert stream.word("ABC", 6) == "CACBBA"
    assert identity("a", 1)[:16] == "2657442bb4a48d62"


@given(st.integers(1, 2**62), st.integers(0, 99))
def test_draws_stay_below(count: int, seed: int) -> None:
    stream = Stream(seed)
    assert all(0 <= stream.below(count) < count for _ in range(5))


def test_draws_are_even_and_independent_of_other_names() -> None:
    draws = [Stream("x", i).below(10) for i in range(5000)]
    counts = np.bincount(draws, minlength=10)
    assert abs(counts - 500).max() < 5 * 500**0.5
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.06


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_a_sample_has_no_repetitions_and_fewer_are_a_prefix(sizes: tuple[int, int]) -> None:
    count, size = sizes
    drawn = Stream("s").sample(count, count)
    assert sorted(drawn) == list(range(count))
    assert Stream("s").sample(count, size) == drawn[:size]


@given(st.integers(1, 200), st.integers(0, 20))
def test_every_beginning_of_a_spread_is_even(count: int, seed: int) -> None:
    """No stretch of a tenth holds much more than its share, however few were drawn."""
    depths = np.array([spread(i, "task", seed) for i in range(count)])
    assert depths.min() >= 0
    assert depths.max() < 1
    assert np.histogram(depths, bins=10, range=(0, 1))[0].max() <= count / 10 + 3
