"""A GGUF file's own weights in transformers: what llama.cpp is compared with, and costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ropewalk.agreement import Agreement
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import Unsupported
from ropewalk.exporting import llama_cpp
from ropewalk.exporting.approximating import loss_of
from ropewalk.exporting.exported import Loss
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.llama_cpp_run import LogProbabilities
from ropewalk.gguf.parts import whole
from ropewalk.gguf.rotation import present_plan
from ropewalk.gguf.weights import model_of, stored_type
from ropewalk.models.install import applied
from ropewalk.schedule import RotarySchedule

ROUNDING = 4
"""The error allowed to an export, as a multiple of its source's rounding: the largest of some
thousand differences is compared, and that varies from setting to setting. Without the factors, the
bundled model is off by more than ten times as much (tests/exporting/test_gguf_file.py)."""


def against_weights(
    parts: Sequence[GGUFHeader],
    said: LogProbabilities,
    tokens: Sequence[int],
    schedule: RotarySchedule,
    report: Callable[[int], None],
) -> Agreement:
    """Compare llama.cpp's answers with the source's dequantised weights under the schedule.

    llama.cpp rounds what it multiplies with weights that are no F32. How much that comes to is
    measured: on the source under its own setting, before the plan.
    """
    header = whole(parts)
    model, ids = model_of(header), np.array(tokens)
    if (stored := stored_type(header)) == "F32":
        allowed = llama_cpp.tolerance(stored, len(tokens))
    else:
        allowed = ROUNDING * _rounding(parts, model, ids, said.positions, report)
    return llama_cpp.beside(model, _plan(schedule), ids, said, allowed)


def _rounding(
    parts: Sequence[GGUFHeader],
    model: nn.Module,
    tokens: NDArray[np.int64],
    positions: range,
    report: Callable[[int], None],
) -> float:
    """The distance of llama.cpp from the source's weights under the source's setting."""
    header = whole(parts)
    present = present_plan(header, header.path.name)
    if len(present.steps()) > 1:
        raise Unsupported("its factors change with the length, so its rounding was not measured")
    ids = tokens[: present.target_length - 1]
    said = llama_cpp_run.log_probabilities(
        *(header.path, ids.tolist()),
        start=min(positions.start, len(ids) - 1),
        step=positions.step,
        report=report,
    )
    return llama_cpp.difference(model, present, ids, said)


def loss_of_nearest(
    parts: Sequence[GGUFHeader],
    schedule: RotarySchedule,
    nearest: RotarySchedule,
    tokens: Sequence[int],
) -> Loss:
    """The loss of following one schedule in place of another, over some tokens."""
    model = model_of(whole(parts))
    outputs = []
    for each in (schedule, nearest):
        with torch.inference_mode(), applied(model, _plan(each), exact_angles=True, check=False):
            logits = model(torch.tensor([list(tokens)]), use_cache=False).logits[0].double()
            outputs.append(logits)
    return loss_of(outputs[:1], outputs[1:])


def _plan(schedule: RotarySchedule) -> ContextPlan:
    return ContextPlan("a GGUF file", {FULL_ATTENTION: (PlanStep(schedule.length, schedule),)})
