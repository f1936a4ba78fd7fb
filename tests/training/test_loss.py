"""The loss in parts is the loss over whole logits, and so are its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk.errors import Unsupported
from ropewalk.training import loss
from ropewalk.training.loss import prepare_loss, summed_loss
from tests.models.tiny import tiny_model, tokens

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "gemma2": {"final_logit_softcapping": 2.0},  # at 30 it changes logits of this size too little
    "granite": {"logits_scaling": 4.0},
    "cohere": {"logit_scale": 0.5},
}


def gradients(model: Any) -> dict[str, torch.Tensor]:
    found = {name: own.grad for name, own in model.named_parameters() if own.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_loss_and_gradients_of_whole_logits(
    family: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole ones from the model itself, which caps and scales them in its own way."""
    kind = "llama" if family == "tied" else family
    model = tiny_model(kind, **FAMILIES[family]).train()
    ids = tokens(13, rows=2)
    targets = tokens(13, rows=2, seed=1)
    targets[0, :4] = -100
    logits = model(input_ids=ids, use_cache=False).logits
    expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    torch.autograd.backward(expected)
    whole = gradients(model)
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", rows * model.config.vocab_size)
    prepare_loss(model)
    found = summed_loss(model, targets, {"input_ids": ids})
    torch.autograd.backward(found)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    parts = gradients(model)
    assert parts.keys() == whole.keys()
    for name, own in parts.items():
        assert float((own - whole[name]).norm()) <= 1e-5 * float(whole[name].norm()), name


def test_no_targets_are_no_loss() -> None:
    model = tiny_model("llama").train()
    prepare_loss(model)
    none = torch.full((1, 9), -100)
    found = summed_loss(model, none, {"input_ids": tokens(9)})
    torch.autograd.backward(found)
    assert found.item() == 0
    assert all(not own.any() for own in gradients(model).values())


def test_a_balancing_loss_is_refused() -> None:
    with pytest.raises(Unsupported, match="output_router_logits adds a balancing loss"):
        prepare_loss(tiny_model("mixtral", output_router_logits=True))


def test_what_is_done_to_logits_and_is_not_known_is_refused() -> None:
    model = tiny_model("llama")
    forward = type(model).forward

    class Doubling(type(model)):  # type: ignore[misc]
        def forward(self, **arguments: Any) -> Any:
            output = forward(self, **arguments)
            output.logits = output.logits * 2
            return output

    model.__class__ = Doubling
    with pytest.raises(Unsupported, match="logits after"):
        prepare_loss(model)
