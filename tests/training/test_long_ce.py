"""LongCE: weights by the authors' formula, and the gradients that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import ropewalk as rw
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import SpecialTokens, Windows, WindowSettings
from ropewalk.errors import InputError, InvalidValue
from ropewalk.training.loss import prepare_loss, summed_loss
from tests.evaluation import tiny
from tests.evaluation.tiny import WINDOW

LENGTH, STEP = 300, WINDOW // 4
ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": WINDOW,
}
TEXT = tiny.documents(2, lines=12)[1].text


@pytest.fixture(scope="module")
def model() -> Any:
    """Random weights under YaRN, which reads 512 tokens."""
    return tiny.model.__wrapped__(rope_parameters=ROPE, max_position_embeddings=4 * WINDOW)


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder_of(model, tmp_path_factory.mktemp("extended"))


def _by_the_formula(model: Any, row: Tensor) -> Tensor:
    """min(exp(short loss − long loss), 5) of the tokens of a sequence after its first."""

    def losses(tokens: Tensor) -> Tensor:
        with torch.no_grad():
            logits = model(tokens[None]).logits[0, :-1]
        return cross_entropy(logits, tokens[1:], reduction="none")

    long, weights = losses(row), torch.ones(len(row) - 1)
    for place in range(WINDOW, len(row)):
        start = (place - WINDOW) // STEP * STEP
        end = min(start + WINDOW + STEP, len(row))
        short = losses(row[start:end])[place - start - 1]
        weights[place - 1] = torch.exp(short - long[place - 1]).clamp(max=5)
    return weights


def test_gradients_are_those_of_the_formula(model: Any, folder: Path, tmp_path: Path) -> None:
    """Of whole documents and of one that is longer than the length that is read."""
    rw.build_data(folder, [TEXT, TEXT[:250]], tmp_path / "tokens", long_ce=LENGTH)
    store = TokenStore(tmp_path / "tokens")
    tokens = torch.tensor([0, *store.tokens(0)[: LENGTH - 1]])
    weights = _by_the_formula(model, tokens)
    assert len(store.tokens(0)) > LENGTH
    assert weights.max() == 5
    assert weights[WINDOW:].min() < 0.5
    np.testing.assert_allclose(store.weights(0)[: LENGTH - 1], weights, rtol=1e-4)
    assert store.weights(0)[LENGTH - 1 :][: WINDOW - 1].tolist() == [1] * (WINDOW - 1)
    settings = WindowSettings(LENGTH, "full", filling="greedy")
    windows = list(Windows(store, settings, SpecialTokens(0, None)))
    window = next(each for each in windows if (each.tokens == tokens.numpy()).all())
    targets = torch.from_numpy(window.labels)[None]
    weighed = torch.from_numpy(np.asarray(window.weights))[None]
    model.zero_grad()
    logits = model(tokens[None]).logits[0, :-1]
    torch.autograd.backward(cross_entropy(logits, tokens[1:], reduction="none") @ weights)
    expected = {name: own.grad.clone() for name, own in model.named_parameters()}
    model.zero_grad()
    prepare_loss(model)
    torch.autograd.backward(summed_loss(model, targets, {"input_ids": tokens[None]}, weighed))
    for name, own in model.named_parameters():
        assert float((own.grad - expected[name]).norm()) < 1e-4 * float(expected[name].norm()), name
    model.zero_grad()


def test_what_cannot_weigh_is_refused(folder: Path, tmp_path: Path) -> None:
    place: Any = (folder, [TEXT], tmp_path / "tokens")
    with pytest.raises(InvalidValue, match="reads up to 512"):
        rw.build_data(*place, long_ce=600)
    with pytest.raises(InvalidValue, match="short context of 128 tokens"):
        rw.build_data(*place, long_ce=128)
    with pytest.raises(InputError, match="leave one of them out"):
        rw.build_data(*place, long_ce=300, weights="answers")


def test_a_store_of_other_weights_is_not_gone_on_with(folder: Path, tmp_path: Path) -> None:
    place: Any = (folder, [TEXT], tmp_path / "tokens")
    rw.build_data(*place, long_ce=300)
    assert rw.build_data(*place, long_ce=300).tokens == len(TEXT)
    with pytest.raises(InputError, match="length"):
        rw.build_data(*place, long_ce=400)
