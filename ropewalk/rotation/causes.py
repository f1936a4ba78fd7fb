"""The likely cause of a rotation that is not the planned one: known faults, as what they give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InputError
from ropewalk.evaluation.served.causes import causes
from ropewalk.models.proof import FLOAT32
from ropewalk.scaling import rebuild
from ropewalk.schedule import MAX_BASE, FloatArray, RotarySchedule

_ROUNDINGS = 128
"""Roundings of a frequency in float32: of its exponent, its power, and the blend of a ramp, which
counts as often as the ramp's factor."""
_NOT_GIVEN = ", which was not given"


def tolerance(
    values: FloatArray, speed: FloatArray, positions: Sequence[int], epsilon: float
) -> FloatArray:
    """The difference of cos and sin, [2, positions, pairs], that rounding allows.

    A frequency's rounding counts p-fold at position p; `epsilon` is the spacing of their format.
    """
    angles = np.multiply.outer(np.asarray(positions, dtype=np.float64), np.abs(speed))
    allowed = np.hypot(*values) * (epsilon + FLOAT32 * (4 + _ROUNDINGS * angles))
    return np.broadcast_to(allowed, values.shape)


def unit(values: FloatArray) -> FloatArray:
    """cos and sin without attention scaling."""
    scaled: FloatArray = values / np.maximum(np.hypot(*values), 1e-300)
    return scaled


class SampledRotation(NamedTuple):
    """The cos and sin read at some positions."""

    cos_sin: FloatArray
    positions: Sequence[int]
    epsilon: float
    scaled: bool
    """False if the attention scaling is left out."""

    def follows(self, schedule: RotarySchedule) -> float:
        """The largest difference from a schedule, in parts of its tolerance."""
        values = np.stack(schedule.cos_sin(self.positions))
        values = values if self.scaled else unit(values)
        allowed = tolerance(values, schedule.inverse_frequencies, self.positions, self.epsilon)
        return float((np.abs(self.cos_sin - values) / allowed).max())

    def likely_cause(
        self, plan: ContextPlan, layer_type: str, length: int, present: ContextPlan | None
    ) -> str:
        """The known fault that gives what was found; `present` is the live config's own plan."""
        planned, cause = plan.schedule(length, layer_type), ""
        # A number that was measured explains more faults than one of a list, and says less.
        for faults in (_known(planned, plan, layer_type), _fits(self, planned)):
            # Rounding to a format moves by half of its spacing: so near, the first listed is named.
            apart = [(max(self.follows(schedule), 0.5), words) for words, schedule in faults]
            nearest, words = min(apart, key=itemgetter(0))
            if not cause and nearest <= 1:
                cause = words
        cause = cause or "no known fault gives these angles"
        stated = present.schedules.get(layer_type, ()) if present is not None else ()
        if any(
            other.geometry.pairs == planned.geometry.pairs and self.follows(other) <= 1
            for other in (step.schedule for step in stated)
        ):
            cause += "; the model's own config states this rotation"
        return cause


def _known(
    planned: RotarySchedule, plan: ContextPlan, layer_type: str
) -> Iterator[tuple[str, RotarySchedule]]:
    for other, steps in plan.schedules.items():
        schedule = steps[-1].schedule
        if other != layer_type and schedule.geometry.pairs == planned.geometry.pairs:
            yield f"layers swapped: the rotation of {other} layers", schedule
    rounded = torch.from_numpy(planned.inverse_frequencies.copy()).bfloat16().double().numpy()
    factors = planned.geometry.factors_of(rounded)
    yield (
        "inverse frequencies rounded to bfloat16",
        replace(planned, rescale_factors=factors, recipe=()),
    )
    for step in plan.steps(layer_type):
        if step.schedule != planned:
            yield f"list: the factors up to length {step.up_to_length:,}", step.schedule
    alone = ContextPlan(plan.model, {FULL_ATTENTION: (PlanStep(plan.target_length, planned),)})
    plain = (PlanStep(plan.target_length, RotarySchedule.plain(planned.geometry)),)
    for cause in causes(alone, ContextPlan(plan.model, {FULL_ATTENTION: plain})):
        words = cause.words.partition(_NOT_GIVEN)[0]
        yield f"{cause.name}: like the plan {words}", cause.plan.longest()


def _fits(sample: SampledRotation, planned: RotarySchedule) -> Iterator[tuple[str, RotarySchedule]]:
    """Faults with a number that no list has: it is measured in what was found."""
    geometry, positions, (cos, sin) = planned.geometry, sample.positions, sample.cos_sin
    scaling = float(np.median(np.hypot(cos, sin)))
    if scaling > 0:
        cause = f"attention factor: {scaling:.5g} instead of {planned.attention_scaling:.5g}"
        yield cause, replace(planned, attention_scaling=scaling)
    bases = {geometry.base ** (geometry.rotary_dim / geometry.head_dim): "rotary dimension"}
    last = geometry.turning_pairs - 1
    # The angle of the slowest pair is measured where it is large, but less than half a turn.
    slow = [n for n, p in enumerate(positions) if p * geometry.plain_frequencies[last] <= 1]
    at = max(slow, default=0)
    turn = math.atan2(sin[at, last], cos[at, last]) * planned.rescale_factors[last]
    if last and turn > 0:
        measured = (positions[at] / turn) ** (geometry.rotary_dim / (2 * last))
        bases |= {float(f"{measured:.{digits}g}"): "base" for digits in (5, 2)}
    for base, name in bases.items():
        if base == geometry.base or not 1 < base <= MAX_BASE:
            continue
        other = replace(geometry, base=base)
        cause = f"{name}: like the plan with base {base:,.0f} instead of {geometry.base:,.0f}"
        yield cause, replace(planned, geometry=other)
        with suppress(InputError):  # the ramps of some methods move with the base
            factors = rebuild(planned.recipe, other).rescale_factors
            yield cause, replace(planned, geometry=other, rescale_factors=factors)
