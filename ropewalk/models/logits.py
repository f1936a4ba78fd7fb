"""A causal model in two parts: its layers, and the head that makes logits of their output.

The logits of 131,072 positions over a vocabulary of 128,256 take 63 GiB. Who needs only some of
them, or needs them some at a time, runs the two parts apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ropewalk.errors import InputError, RopewalkError, Unsupported


class Head:
    """The head of a causal model of transformers, with the model's changes to logits after it."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.body = model.base_model
        self.projection = model.get_output_embeddings()
        self._finish = _finishing(model.config)
        if self.body is model or self.projection is None:
            raise Unsupported(
                f"{name_of(model)} has no language-model head separate from its layers, which "
                "ropewalk needs; load a causal language model"
            )

    @property
    def vocabulary(self) -> int:
        return int(self.projection.weight.shape[0])

    def logits(self, hidden: Tensor) -> Tensor:
        return self._finish(self.projection(hidden))

    @torch.no_grad()
    def check(self) -> None:
        """True if body and head together give what the model itself gives."""
        tokens = torch.arange(8).remainder(self.vocabulary).unsqueeze(0).to(self._model.device)
        whole = self._model(input_ids=tokens, use_cache=False).logits
        if not whole.isfinite().all():
            raise not_numbers(self._model, tokens.shape[1])
        parts = self.logits(self.body(input_ids=tokens, use_cache=False).last_hidden_state)
        tolerance = 16 * torch.finfo(parts.dtype).eps
        if whole.shape != parts.shape or not torch.allclose(
            whole, parts, rtol=tolerance, atol=tolerance * float(whole.abs().max())
        ):
            raise Unsupported(
                f"{name_of(self._model)} changes its logits after the head in a way that ropewalk "
                "does not know, so losses would be wrong; this model is not supported yet"
            )


def check_finite(model: Any) -> None:
    """Refuse weights that are not numbers: their output says nothing about a plan.

    Of a model that is cut over ranks, each looks at its own part: not all of them may ask.
    """
    for name, weight in model.named_parameters():
        part = weight.to_local() if hasattr(weight, "to_local") else weight
        if not part.isfinite().all():
            raise InputError(
                f"{name_of(model)}: {name} holds NaN or infinite values, so all that it computes "
                "is NaN; copy the weights again, or resume training from a checkpoint saved "
                "before the loss became NaN"
            )


def not_numbers(model: Any, length: int) -> RopewalkError:
    """The error for logits that are no numbers, whether by the weights or by what is computed."""
    try:
        check_finite(model)
    except InputError as error:
        return error
    return RopewalkError(
        f"{name_of(model)}: its logits are not numbers (NaN or infinite) at a length of "
        f"{length}; try float32 (`dtype`), and check its weights and its plan"
    )


def name_of(model: Any) -> str:
    return f"{type(model).__name__} (model type {model.config.model_type!r})"


def _finishing(config: Any) -> Callable[[Tensor], Tensor]:
    """A family's changes to its logits after the head, by its config."""
    config = config.get_text_config()
    factor = getattr(config, "logit_scale", None) or 1.0  # Cohere
    factor *= getattr(config, "lm_head_multiplier", None) or 1.0  # Falcon-H1
    factor /= getattr(config, "logits_scaling", None) or 1.0  # Granite
    cap = getattr(config, "final_logit_softcapping", None)  # Gemma

    def finish(logits: Tensor) -> Tensor:
        if factor != 1.0:
            logits = logits * factor
        return torch.tanh(logits / cap) * cap if cap else logits

    return finish
