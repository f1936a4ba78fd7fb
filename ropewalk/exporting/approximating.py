"""The loss of a runtime's approximation of a plan, measured in transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ropewalk.context_plan import ContextPlan
from ropewalk.exporting import gate
from ropewalk.exporting.exported import Loss
from ropewalk.exporting.gate import TokenSequence
from ropewalk.exporting.plan_check import check_plan
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.load import read_model

if TYPE_CHECKING:
    from ropewalk.runtimes.runtime import Target


def nearest(
    runtime: Target, checkpoint: Checkpoint, plan: ContextPlan, *, approximate: bool
) -> tuple[ContextPlan, tuple[str, ...]]:
    """The plan that the runtime can follow, with a warning for each approximation and its cost."""
    check_plan(plan, checkpoint.config, checkpoint.source)
    followed, near = runtime.expressible(plan, checkpoint.config, approximate=approximate)
    if not near:
        return plan, ()
    (loss,) = losses_between(checkpoint, plan, [followed])
    return followed, warnings(near, loss)


def warnings(approximations: Sequence[str], loss: Loss) -> tuple[str, ...]:
    """The approximations and their cost, in words."""
    return (*(f"approximated: {said}" for said in approximations), f"approximation cost: {loss}")


def losses_between(
    checkpoint: Checkpoint, plan: ContextPlan, followed: Sequence[ContextPlan]
) -> list[Loss]:
    """The loss of a model that follows each of these plans in place of another.

    Each is measured once: runtimes often follow the same one.
    """
    model = read_model(checkpoint.folder, torch.float32).eval()
    plans = {each.id: each for each in followed}
    losses = {key: _loss(model, checkpoint, plan, each) for key, each in plans.items()}
    return [losses[each.id] for each in followed]


def _loss(model: Any, checkpoint: Checkpoint, plan: ContextPlan, followed: ContextPlan) -> Loss:
    sequences = gate.sequences(plan, gate.probe_ids(checkpoint.folder))
    near = [gate.planned_logits(model, followed, sequence) for sequence in sequences]
    return divergence(model, plan, sequences, near)


def divergence(
    model: Any, plan: ContextPlan, sequences: Sequence[TokenSequence], approximate: Sequence[Tensor]
) -> Loss:
    """The divergence of approximate logits from the planned ones, each sequence at its length."""
    exact = [gate.planned_logits(model, plan, each, length=each.length) for each in sequences]
    return loss_of(exact, approximate)


def loss_of(exact: Sequence[Tensor], approximate: Sequence[Tensor]) -> Loss:
    """The divergence of approximate logits from the exact ones."""
    nats = [
        torch.nn.functional.kl_div(
            near.log_softmax(-1), right.log_softmax(-1), reduction="none", log_target=True
        ).sum(-1)
        for right, near in zip(exact, approximate, strict=True)
    ]
    differences = (
        float((near - right).abs().max()) for right, near in zip(exact, approximate, strict=True)
    )
    return Loss(float(torch.cat(nats).mean()), max(differences))
