"""DroPE: no positions: no pair turns, for a model that is then trained without them.

arXiv 2512.12167: the rotation is dropped in all layers, the model is trained for a while at its
original length, and beyond it logits are multiplied by β. The total factor of every pair is the
cap, whatever the start's was. β is 1 + 0.103 ln s unless given, the paper's fit for SmolLM; for a
model trained from scratch it found 1 + 0.412 ln s, so fit it at the target. Where all of a head
rotates, m = √β; in a head that rotates in part m would miss the rest, so the softmax scaling is β.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ropewalk.errors import InvalidValue
from ropewalk.scaling import scale_of, scaling_method
from ropewalk.schedule import MAX_FACTOR, MAX_SCALING, RotarySchedule

GROWTH = 0.103


@scaling_method(identity_at_one=False, monotone=True, needs_training=True)
def schedule(
    start: RotarySchedule, target_length: int, *, beta: float | None = None
) -> RotarySchedule:
    if beta is None:
        beta = 1 + GROWTH * math.log(scale_of(start, target_length))
    if not 1 / MAX_SCALING <= beta <= MAX_SCALING:
        raise InvalidValue(
            "beta",
            beta,
            f"must be above 0 and at most {MAX_SCALING:g}",
            "the paper's fits are 1 + 0.103 ln s and 1 + 0.412 ln s",
        )
    still = replace(
        start,
        rescale_factors=np.full(start.geometry.pairs, MAX_FACTOR),
        length=target_length,
    )
    if start.geometry.rotary_dim < start.geometry.head_dim:
        return replace(still, softmax_scaling=start.softmax_scaling * beta)
    return replace(still, attention_scaling=start.attention_scaling * math.sqrt(beta))
