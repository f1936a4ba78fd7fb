"""The metrics against the equations, and what must be exactly nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ropewalk.number_formats import stage as stages
from ropewalk.number_formats.arms import ARMS, EXACT, Arm
from ropewalk.number_formats.shifts import ShiftDifference, shift_differences
from ropewalk.number_formats.stage import OpenModel
from tests.models import tiny
from tests.number_formats import naive

LENGTH = 48
# What the stock model does in float32: its own tables, no cast.
STOCK = replace(Arm("stock"), own_tables=True)


@pytest.fixture(scope="module")
def stage() -> OpenModel:
    return OpenModel(tiny.tiny_model("llama"))


def one(stage: OpenModel, arm: Arm, first: int, second: int, **options: Any) -> ShiftDifference:
    tokens = tiny.tokens(LENGTH)[0]
    [found] = shift_differences(stage, tokens, arm, second, [first], **options)
    return found


def test_equals_a_naive_transcription(stage: OpenModel, monkeypatch: pytest.MonkeyPatch) -> None:
    # A shift that float32 angles feel, so that there is something to compare.
    first, second = 0, 1_000_000
    monkeypatch.setattr(stages, "BLOCK", {"cpu": 2**10})  # many blocks of rows
    monkeypatch.setattr(stages, "LEAST_ROWS", 1)
    tokens = tiny.tokens(LENGTH)[0]
    found = one(stage, STOCK, first, second, lengths=[7, 30])
    a, a_logits = naive.attention_and_logits(stage.model, tokens, first)
    b, b_logits = naive.attention_and_logits(stage.model, tokens, second)
    truth = naive.equation_4(a, b)
    assert truth > 0.05
    assert found.attention[-1].sum() == pytest.approx(truth, rel=1e-3)
    assert found.lengths == (7, 30, LENGTH)
    for i, length in enumerate(found.lengths):
        expected = naive.equation_5(a_logits, b_logits, length)
        assert found.logit[i].sum() == pytest.approx(expected, rel=1e-3)


def test_shorter_lengths_are_read_off_a_longer_sequence(stage: OpenModel) -> None:
    arm = ARMS["bf16"]
    tokens = tiny.tokens(LENGTH)[0]
    long = one(stage, arm, 0, 16, lengths=[20])
    [short] = shift_differences(stage, tokens[:20], arm, 16, [0])
    np.testing.assert_allclose(long.attention[0], short.attention[-1], rtol=1e-2)
    np.testing.assert_allclose(long.logit[0], short.logit[-1], rtol=1e-2)


def test_tokens_add_up_to_the_whole(stage: OpenModel) -> None:
    found = one(stage, ARMS["bf16"], 0, 16)
    np.testing.assert_allclose(found.tokens.sum(-1), found.attention[-1], rtol=1e-9)
    assert found.attention.shape == (1, 2, 4)
    assert (found.tokens > 0).all()


@pytest.mark.parametrize("shift", [7, 2000])
def test_float64_throughout_is_relative(stage: OpenModel, shift: int) -> None:
    found = one(stage, EXACT, shift, 16)
    assert found.attention[-1].sum() < 1e-9
    assert found.logit[-1].sum() < 1e-9


@pytest.mark.parametrize("arm", [a for a in ARMS if a != "tf32"])
def test_equal_shifts_differ_by_exactly_nothing(stage: OpenModel, arm: str) -> None:
    found = one(stage, ARMS[arm], 16, 16, lengths=[10, 20])
    assert not found.attention.any()
    assert not found.logit.any()
    assert not found.tokens.any()
    assert found.losses[0] == found.losses[1]


def test_formats_stray_in_the_order_of_their_precision(stage: OpenModel) -> None:
    strays = [
        one(stage, ARMS[name], 0, 500).attention[-1].sum()
        for name in ("fp64", "fp32", "fp16", "bf16", "bf16_positions")
    ]
    assert strays == sorted(strays)
    assert strays[3] > 100 * strays[1]


def test_bf16_frequencies_stay_relative_though_wrong(stage: OpenModel) -> None:
    """Rounded frequencies are other frequencies: only their error, no shift, can show them."""
    rounded = replace(EXACT, frequencies="bfloat16")
    assert one(stage, rounded, 0, 500).attention[-1].sum() < 1e-9


def test_losses_are_those_of_the_model(stage: OpenModel) -> None:
    tokens = tiny.tokens(LENGTH)[0]
    with torch.no_grad():
        logits = stage.model(tokens[None]).logits[0]
    expected = torch.nn.functional.cross_entropy(logits[:-1], tokens[1:])
    found = one(stage, STOCK, 0, 16)
    assert found.losses[0] == pytest.approx(float(expected), rel=1e-5)
