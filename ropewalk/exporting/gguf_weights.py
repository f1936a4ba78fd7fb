"""A GGUF file's own weights in transformers: what llama.cpp is compared with, and costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import Unsupported
from ropewalk.exporting import llama_cpp
from ropewalk.exporting.parity import Loss, Parity
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.llama_cpp_run import LogProbabilities
from ropewalk.gguf.parts import whole
from ropewalk.gguf.weights import model_of, stored_type
from ropewalk.models.install import applied
from ropewalk.schedule import RotarySchedule


def against_weights(
    parts: Sequence[GGUFHeader],
    said: LogProbabilities,
    tokens: Sequence[int],
    schedule: RotarySchedule,
) -> Parity:
    """What llama.cpp said, beside the source's dequantised weights under the schedule."""
    header = whole(parts)
    stored = stored_type(header)
    if stored not in llama_cpp.TOLERANCES:
        raise Unsupported(f"the rounding error of weights stored as {stored} is not known here")
    return llama_cpp.beside(
        model_of(header), _plan(schedule), np.array(tokens), said, stored, check=False
    )


def loss_between(
    parts: Sequence[GGUFHeader],
    schedule: RotarySchedule,
    nearest: RotarySchedule,
    tokens: Sequence[int],
) -> Loss:
    """What the model loses that follows one schedule in place of another, over some tokens."""
    model = model_of(whole(parts))
    found = []
    for own in (schedule, nearest):
        with torch.inference_mode(), applied(model, _plan(own), exact_angles=True, check=False):
            logits = model(torch.tensor([list(tokens)]), use_cache=False).logits[0].double()
            found.append(logits)
    right, near = (logits.log_softmax(-1) for logits in found)
    nats = torch.nn.functional.kl_div(near, right, reduction="none", log_target=True).sum(-1)
    return Loss(float(nats.mean()), float((found[0] - found[1]).abs().max()))


def _plan(schedule: RotarySchedule) -> ContextPlan:
    return ContextPlan("a GGUF file", {FULL_ATTENTION: (PlanStep(schedule.length, schedule),)})
