"""From journalled numbers to estimates and sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.number_formats.results import Estimate, Findings, summarise, times

LENGTH = 12
OTHERS = [0.05, 0.06, 0.06, 0.06, 0.06, 0.06, 0.07, 0.09, 0.1, 0.1, 0.1]


def attention(rng: np.random.Generator, sink: float) -> Any:
    """Causal rows that sum to one, the first column raised."""
    logits = rng.normal(size=(LENGTH, LENGTH))
    logits[:, 0] += sink
    logits[np.triu_indices(LENGTH, 1)] = -np.inf
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def record(tokens: list[float], sequence: int = 0, scale: float = 1.0) -> dict[str, Any]:
    total = sum(tokens)
    return {
        "weights": "given",
        "arm": "bf16",
        "sequence": sequence,
        "group": 16,
        "first": 0,
        "second": 16,
        "lengths": [3, 6, LENGTH],
        "attention": [total / 4, total / 2, total],
        "logit": [scale * length**0.5 for length in (3, 6, LENGTH)],
        "losses": None,
        "tokens": tokens,
        "by_layer_and_head": {
            "attention": [[total / 2, total / 2]],
            "first_token": [[tokens[0], 0.0]],
            "logit": [[scale, 0.0]],
        },
    }


@given(seed=st.integers(0, 2**32 - 1), sink=st.floats(0, 30), change=st.floats(0.01, 3))
def test_no_token_carries_more_than_half_of_d(seed: int, sink: float, change: float) -> None:
    """Rows sum to one, so what the first column gains, the others lose."""
    rng = np.random.default_rng(seed)
    first = attention(rng, sink)
    second = attention(rng, sink + change)
    tokens = np.abs(first - second).sum(0) / np.arange(LENGTH, 0, -1)
    [arm] = summarise([record(tokens.tolist())], 16)
    assert arm.first_token_share.mean <= 0.5 + 1e-9
    assert 0 <= arm.first_token_flow.mean <= 1 + 1e-9


def test_all_flows_through_the_first_token_where_others_only_trade_with_it() -> None:
    # In rows 1 to 3 of four, 0.2 moves from the first token to another one.
    changes = np.array([0.6, 0.2, 0.2, 0.2])
    [arm] = summarise([record((changes / np.arange(4, 0, -1)).tolist())], 16)
    assert arm.first_token_flow.mean == pytest.approx(1)


def test_estimates_are_means_over_sequences_by_layer_and_head_too() -> None:
    one = [0.4, *[0.1] * (LENGTH - 1)]
    two = [0.8, *[0.1] * (LENGTH - 1)]
    [arm] = summarise([record(one, 0, 1.0), record(two, 1, 3.0)], 16)
    heads = arm.by_layer_and_head
    assert heads.first_token[0][0].mean == pytest.approx(0.6)
    assert heads.logit[0][0] == Estimate(2, None, None), "two sequences give no interval"
    assert heads.logit[0][1] == Estimate(0, None, None)
    assert sum(v.mean for v in heads.attention[0]) == pytest.approx(arm.strays.mean)
    assert arm.growth is not None
    assert arm.growth.mean == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("firsts", "sentence"),
    [
        (
            [0.5, 0.6, 0.5, 0.6, 0.5],
            "has, on average over sequences, the largest part of D: rank 1 of 12 (1",
        ),
        ([0.08, 0.09, 0.08, 0.09, 0.08], "has more than the median token's part of D: rank 5 of"),
        ([0.02, 0.03, 0.02, 0.03, 0.02], "has less than the median token's part of D: rank 12 of"),
        ([0.03, 0.2, 0.03, 0.2, 0.07], "cannot be told from the median token"),
        ([0.5, 0.6, 0.5, 0.6], "is not judged from fewer than 5 sequences: rank 1 of 12"),
    ],
)
def test_the_verdict_on_the_first_token_goes_by_rank_and_ratio(
    firsts: list[float], sentence: str
) -> None:
    arms = summarise([record([f, *OTHERS], i) for i, f in enumerate(firsts)], 16)
    found = Findings("m", LENGTH, 16, len(firsts), "forward", "cpu", arms)
    [line] = [line for line in found.diagnosis if "the first token " in line]
    assert sentence in line
    assert "times the median token's part" in line


def test_the_ratio_is_a_geometric_mean_over_sequences() -> None:
    parts = [[0.1, *[0.1] * 4], [0.4, *[0.1] * 4]]
    [arm] = summarise([record(own, i) for i, own in enumerate(parts)], 16)
    assert arm.first_token_ratio == pytest.approx((2, None, None))
    assert arm.first_token_rank == (1, 1, 1, 5)
    [still] = summarise([record([0.0] * 5, i) for i in range(2)], 16)
    assert still.first_token_ratio is None


def test_no_sentence_compares_without_an_interval() -> None:
    """Five sequences or more, or the sentence says that it does not judge."""
    few = summarise([record([0.5, *OTHERS], i, 1 + i) for i in range(4)], 16)
    lines = Findings("m", LENGTH, 16, 4, "forward", "cpu", few).diagnosis
    [line] = [line for line in lines if "logit difference" in line]
    assert "is not judged from fewer than 5 sequences" in line
    assert not any("FlashAttention" in line or "no reason" in line for line in lines)


def test_a_ratio_of_two_arms_is_paired_by_sequence() -> None:
    scales = (1.0, 2.0, 4.0, 8.0, 16.0)
    ours = [record([scale * part for part in OTHERS], i) for i, scale in enumerate(scales)]
    theirs = [{**r, "arm": "fp32", "attention": [a / 3 for a in r["attention"]]} for r in ours]
    arms = summarise([*ours, *theirs], 16)
    assert times(*arms) == pytest.approx((3, 3, 3))


@pytest.mark.parametrize(("power", "word"), [(1.0, "grows"), (0.0, "hardly"), (-1.0, "falls")])
def test_the_verdict_says_how_it_grows_with_length(power: float, word: str) -> None:
    lengths = (3, 6, LENGTH)
    records = [
        {**record([0.1] * LENGTH, i), "logit": [(1 + i) * n**power for n in lengths]}
        for i in range(5)
    ]
    found = Findings("m", LENGTH, 16, 5, "forward", "cpu", summarise(records, 16))
    [line] = [line for line in found.diagnosis if "logit difference" in line]
    assert f"logit difference {word}" in line
    assert replace(found, arms=()).arm("bf16") is None
