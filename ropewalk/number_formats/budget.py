"""The cost of each cast: the error of every step of an arm against float64 angles.

Each step is given the arm's format alone, with float64 everywhere else, on the model's own queries
and keys. Two readings of each: how far a rotated pair ends from where it should be, as a fraction
of its length (by pair, since fast pairs suffer from positions and slow ones from frequencies), and
how far the logits end from theirs. Both at several shifts, since a shift is a distance from zero,
where numbers are densest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.number_formats.arms import EXACT, STEPS, Arm, matmul_format
from ropewalk.number_formats.results import TOGETHER, StepError
from ropewalk.number_formats.shifts import moved
from ropewalk.number_formats.stage import Call, Stage

SHIFTS = (0, 512, 4096, 32768, 131072)


def error_budget(
    stage: Stage, tokens: Tensor, arm: Arm, shifts: Sequence[int] = SHIFTS
) -> list[StepError]:
    """Every step of an arm alone, and all of them together, at every shift."""
    calls: list[Call] = []
    stage.run(tokens, 0, EXACT, listener=calls.append)
    alone = [] if arm.own_tables else [(step, arm.only(step)) for step in STEPS]
    return [
        StepError(arm.name, step, shift, *_errors(stage, calls, own, shift))
        for shift in shifts
        for step, own in (*alone, (TOGETHER, arm))
    ]


def _errors(
    stage: Stage, calls: Sequence[Call], arm: Arm, shift: int
) -> tuple[float, tuple[float, ...]]:
    """One arm against float64 angles, from the same queries and keys: logits, and pairs."""
    pair_squares: list[Tensor] = []
    logit_squares, count = 0.0, 0
    for call in calls:
        ours, exact = moved(stage, call, arm, shift), moved(stage, call, EXACT, shift)
        for mine, truth in (
            (ours.rotated_query, exact.rotated_query),
            (ours.rotated_key, exact.rotated_key),
        ):
            true_pair = call.layout.split(truth)
            off = [a.double() - b for a, b in zip(call.layout.split(mine), true_pair, strict=True)]
            size = true_pair[0].square() + true_pair[1].square()
            relative = (off[0].square() + off[1].square()) / size.clamp(min=1e-30)
            pair_squares.append(relative.mean((0, 1)))
        with matmul_format(arm):
            for start, end in call.rows():
                difference = ours.logits(start, end).double() - exact.logits(start, end)
                difference[..., start:].tril_()
                logit_squares += float(difference.square().sum())
        heads, length = call.query.shape[:2]
        count += heads * length * (length + 1) // 2
    by_pair = torch.stack(pair_squares).mean(0).sqrt().tolist()
    return (logit_squares / count) ** 0.5, tuple(by_pair)
