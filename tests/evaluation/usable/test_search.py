"""The search over lengths on simulated models: it ends, it brackets, and it spends what it may."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.evaluation.usable.search import (
    MOST,
    Bracket,
    bounds,
    following,
    reference_of,
    steps,
    sweep_tokens,
)
from ropewalk.evaluation.verdict import LOOKS, Shares, look

FACTS, WITHIN = 8, 48
CLAIMED, SHORT = 131072, 8192


def simulated(
    rate: Callable[[int], float], seed: int = 0, room: float | None = None
) -> tuple[Bracket, dict[int, int]]:
    """The bounds of a model that finds facts with this chance, and the documents by length."""
    drawn, lengths = random.Random(seed), steps(SHORT, CLAIMED)

    def shares(length: int, count: int) -> list[float]:
        chance = rate(length)
        return [sum(drawn.random() < chance for _ in range(FACTS)) / FACTS for _ in range(count)]

    short = Shares(shares(SHORT, WITHIN), FACTS, range(WITHIN))
    left = sweep_tokens(SHORT, lengths) / 4 if room is None else room
    seen: dict[int, Shares] = {}
    while (wanted := following(lengths, seen, short, left)) is not None:
        own = list(seen[wanted.length].shares) if wanted.length in seen else []
        assert len(own) < wanted.documents <= MOST
        assert wanted.documents in LOOKS
        left -= (wanted.documents - len(own)) * wanted.length
        assert left >= 0
        own += shares(wanted.length, wanted.documents - len(own))
        seen[wanted.length] = Shares(own, FACTS, range(len(own)))
    found = bounds(SHORT, {n: look(own, short) for n, own in seen.items()})
    return found, {n: len(own.shares) for n, own in seen.items()}


@given(st.sampled_from(steps(SHORT, CLAIMED)), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_a_model_that_ends_at_once_is_bracketed_within_a_step(last: int, seed: int) -> None:
    found, read = simulated(lambda n: 1.0 if n <= last else 0.0, seed)
    lengths = (SHORT, *steps(SHORT, CLAIMED))
    after = lengths[lengths.index(last) + 1] if last < CLAIMED else None
    assert found == (last, last, after)
    assert sum(n * count for n, count in read.items()) < sweep_tokens(SHORT, lengths) / 4


@given(
    st.floats(0.6, 1.0), st.floats(8.5e3, 2e5), st.floats(0.3, 10.0), st.integers(0, 10**6),
    st.floats(0, 3e7),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_bounds_are_in_order_whatever_a_model_does(
    best: float, middle: float, power: float, seed: int, room: float
) -> None:
    found, read = simulated(lambda n: best / (1 + (n / middle) ** power), seed, room)
    assert SHORT <= found.works <= found.value <= CLAIMED
    assert found.fails is None or found.value < found.fails <= CLAIMED
    assert found.works == SHORT or read[found.works] >= 32, "nothing works by fewer documents"


def test_a_dip_that_bisecting_would_step_over_ends_the_usable_length() -> None:
    found, _ = simulated(lambda n: 0.2 if n == CLAIMED // 4 else 0.95)
    assert found.fails == CLAIMED // 4
    assert found.works < CLAIMED // 4


def test_lengths_beyond_two_failing_doublings_are_not_read() -> None:
    _, read = simulated(lambda n: 0.95 if n <= SHORT else 0.0)
    assert max(read) == 4 * SHORT


def test_the_interval_of_noisy_models_holds_the_true_length() -> None:
    """`python -m benchmarks.howlong coverage` measures how often."""

    def rate(length: int) -> float:
        return 0.95 / (1 + 0.1 / 0.85 * (length / 5e4) ** 3)

    true = max(n for n in range(SHORT, CLAIMED, 256) if rate(n) >= rate(SHORT) - 0.1)
    runs = [simulated(rate, seed)[0] for seed in range(20)]
    assert sum(low <= true and (high is None or true < high) for low, _, high in runs) >= 18


@pytest.mark.parametrize(
    ("claimed", "small", "window", "short"),
    [
        (131072, False, None, 8192),
        (131072, False, 4096, 4096),
        (2**20, False, 131072, 8192),
        (32768, False, None, 2048),
        (2048, False, None, 1024),
        (512, True, 512, 256),
        (4096, True, 512, 512),
    ],
)
def test_the_short_length(claimed: int, small: bool, window: int | None, short: int) -> None:
    assert reference_of(claimed, small=small, window=window) == short
    lengths = steps(short, claimed)
    assert lengths[-1] == claimed
    assert lengths == tuple(sorted(set(lengths)))
    assert min(lengths) > short
