"""The likely cause of a rotation that is not the planned one: known faults, as what they give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InputError
from ropewalk.evaluation.served.causes import causes
from ropewalk.scaling import rebuild
from ropewalk.schedule import MAX_BASE, FloatArray, RotarySchedule

_NOT_GIVEN = ", which was not given"
UNKNOWN = "no known fault gives these angles"


def likely_cause(
    found: FloatArray,
    tolerance: FloatArray,
    positions: Sequence[int],
    plan: ContextPlan,
    layer_type: str,
    length: int,
    present: ContextPlan | None,
) -> str:
    """The known fault that gives what was found, [2, positions, pairs], in words.

    `present` is the plan that the config of the live model states.
    """
    own = plan.schedule(length, layer_type)

    def excess(wrong: FloatArray) -> float:
        return float((np.abs(found - wrong) / tolerance).max())

    def turned(schedule: RotarySchedule) -> FloatArray:
        return np.stack(schedule.cos_sin(positions))

    told = UNKNOWN
    coarse = torch.tensor(positions).bfloat16().double().numpy()
    if excess(np.stack(own.cos_sin(coarse))) <= 1:
        told = "positions rounded to bfloat16"
    # A number that was measured explains more faults than one of a list, and says less.
    for faults in (_known(own, plan, layer_type), _measured(found, positions, own)):
        apart = [(excess(turned(schedule)), words) for words, schedule in faults]
        nearest, words = min(apart)
        if told is UNKNOWN and nearest <= 1:
            told = words
    if present is not None and layer_type in present.schedules:
        stated = present.schedule(min(length, present.target_length), layer_type)
        if stated.geometry.pairs == own.geometry.pairs and excess(turned(stated)) <= 1:
            told += "; the model's own config states this rotation"
    return told


def _known(
    own: RotarySchedule, plan: ContextPlan, layer_type: str
) -> Iterator[tuple[str, RotarySchedule]]:
    for other, steps in plan.schedules.items():
        schedule = steps[-1].schedule
        if other != layer_type and schedule.geometry.pairs == own.geometry.pairs:
            yield f"layers swapped: the rotation of {other} layers", schedule
    rounded = torch.tensor(own.inverse_frequencies).bfloat16().double().numpy()
    factors = own.geometry.factors_of(rounded)
    yield (
        "inverse frequencies rounded to bfloat16",
        replace(own, rescale_factors=factors, recipe=()),
    )
    for step in plan.steps(layer_type):
        if step.schedule != own:
            yield f"list: the factors up to length {step.up_to_length:,}", step.schedule
    alone = ContextPlan(plan.model, {FULL_ATTENTION: (PlanStep(plan.target_length, own),)})
    plain = (PlanStep(plan.target_length, RotarySchedule.plain(own.geometry)),)
    for cause in causes(alone, ContextPlan(plan.model, {FULL_ATTENTION: plain})):
        told = cause.told.partition(_NOT_GIVEN)[0]
        yield f"{cause.name}: the plan {told}", cause.plan.longest()


def _measured(
    found: FloatArray, positions: Sequence[int], own: RotarySchedule
) -> Iterator[tuple[str, RotarySchedule]]:
    """Faults with a number that no list has: it is measured in what was found."""
    geometry, (cos, sin) = own.geometry, found
    scaling = float(np.median(np.hypot(cos, sin)))
    if scaling > 0:
        told = f"attention factor: {scaling:.5g} instead of {own.attention_scaling:.5g}"
        yield told, replace(own, attention_scaling=scaling)
    bases = {geometry.base ** (geometry.rotary_dim / geometry.head_dim): "rotary dimension"}
    last = geometry.turning_pairs - 1
    # The angle of the slowest pair is measured where it is large, but less than half a turn.
    slow = [n for n, p in enumerate(positions) if p * geometry.plain_frequencies[last] <= 1]
    at = max(slow, default=0)
    turn = math.atan2(sin[at, last], cos[at, last]) * own.rescale_factors[last]
    if last and turn > 0:
        measured = (positions[at] / turn) ** (geometry.rotary_dim / (2 * last))
        bases |= {float(f"{measured:.{digits}g}"): "base" for digits in (5, 2)}
    for base, name in bases.items():
        if base == geometry.base or not 1 < base <= MAX_BASE:
            continue
        other = replace(geometry, base=base)
        told = f"{name}: the plan with base {base:,.0f} instead of {geometry.base:,.0f}"
        yield told, replace(own, geometry=other)
        with suppress(InputError):  # the ramps of some methods move with the base
            factors = rebuild(own.recipe, other).rescale_factors
            yield told, replace(own, geometry=other, rescale_factors=factors)
