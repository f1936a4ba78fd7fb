"""The loss of windows, without their logits ever existing all at once.

Logits are made some rows at a time, and again in the backward pass. torch has a function that does
so (`linear_cross_entropy`, from 2.13 on), but what some families do to logits after the head, such
as Gemma's soft cap, has no place in it.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from ropewalk.data.windows import IGNORED
from ropewalk.errors import Unsupported
from ropewalk.models.logits import Head

# Numbers of logits that exist at once: 128 MiB in float32.
LOGITS_AT_ONCE = 32 * 2**20
METHOD = "ropewalk_loss"


def prepare_loss(model: Any, *, check: bool = True) -> None:
    """Give a model the method that `summed_loss` calls; verified on the model, unless it has no
    contents (fake tensors).

    A method, because FSDP gathers a root's own weights, the embeddings and the head, around its
    forward and around methods that are registered (METHOD), and not for who calls its parts.
    """
    config = model.config.get_text_config()
    if getattr(config, "output_router_logits", False):
        raise Unsupported(
            "output_router_logits adds a balancing loss for experts, which ropewalk's loss lacks; "
            "set it to False in the model's config, or train with transformers.Trainer"
        )
    head = Head(model)
    if check:
        head.check()

    def loss(
        self: Any, targets_BL: Tensor, inputs: dict[str, Any], weights_BL: Tensor | None
    ) -> Tensor:
        hidden = head.body(**inputs, use_cache=False).last_hidden_state.flatten(0, 1)
        rows = max(1, LOGITS_AT_ONCE // head.vocabulary)
        columns = [hidden, targets_BL.flatten()]
        if weights_BL is not None:
            columns.append(weights_BL.flatten())
        parts = zip(*(torch.split(column, rows) for column in columns), strict=True)
        losses = [checkpoint(_summed, head, *part, use_reentrant=False) for part in parts]
        return torch.stack(losses).sum()

    setattr(model, METHOD, MethodType(loss, model))


def summed_loss(
    model: Any, targets: Tensor, inputs: dict[str, Any], weights: Tensor | None = None
) -> Tensor:
    """The sum of the losses of all targets, in nats, each times its weight; `IGNORED` ones count
    nothing."""
    loss: Tensor = getattr(model, METHOD)(targets, inputs, weights)
    return loss


def _summed(head: Head, hidden: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    logits = head.logits(hidden).float()
    if weights is None:
        return cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    return cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none") @ weights.float()
