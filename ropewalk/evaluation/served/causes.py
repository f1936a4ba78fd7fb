"""Known faults of servers: each cause as the plan that a server then follows instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InputError
from ropewalk.lengths import format_length
from ropewalk.planning.extension import extend
from ropewalk.schedule import MAX_FACTOR, RotarySchedule

BASES = (1e4, 5e5, 1e6)
"""Bases that loaders fall back on."""
BASE_RATIOS = (0.1, 0.25, 0.5, 0.8, 1.25, 2.0, 4.0, 10.0)
RATIOS = (0.25, 0.5, 2.0, 4.0)
"""The ratios by which a factor, or an original length, may be off."""
METHODS = ("linear", "ntk", "yarn")
FORGOTTEN = "plan"
"""The cause of a server that follows a plan if the fingerprint is of the unmodified model."""
AND = " and "
"""Between the two causes of a pair, in its name and its description."""
_PAIRED = (0.5, 2.0)
"""The ratios of a factor or base that are tried together with another cause."""
ROUNDED = {
    "without any scaling",
    "without its attention factor",
    *(f"with {ratio:g} times its factor" for ratio in _PAIRED),
}
"""The causes that are tried together with weights or a cache of 4 bits, too."""


Named = Iterator[tuple[str, str, RotarySchedule]]
"""Schedules of causes, each with the name of its cause and its description."""


class CausePlan(NamedTuple):
    """One thing that may have happened, with the plan whose answers it explains."""

    name: str
    """The kind of cause: several causes may be of one kind."""
    words: str
    """Goes on after "answers like the plan "."""
    plan: ContextPlan


def causes(plan: ContextPlan, present: ContextPlan) -> list[CausePlan]:
    """All known causes, without those whose schedules cannot be told from this plan's.

    `present` is the plan that the unmodified model follows.
    """
    layer = plan.extended_layer
    right = plan.longest(layer)
    plans: list[CausePlan] = []
    seen = {_computed(right)}
    start = present.longest(layer)
    for name, words, schedule in (*_schedules(right, start), *_pairs(right, start)):
        if _computed(schedule) not in seen:
            seen.add(_computed(schedule))
            step = PlanStep(plan.target_length, replace(schedule, length=plan.target_length))
            changed = plan.with_steps(layer, (step,))
            plans.append(CausePlan(name, words, changed))
    if len(plan.steps(layer)) > 1:
        for step in plan.steps(layer):
            words = f"with its schedule up to {format_length(step.up_to_length)} at every length"
            only = PlanStep(plan.target_length, step.schedule)
            changed = replace(plan, schedules={**plan.schedules, layer: (only,)})
            plans.append(CausePlan("step", words, changed))
    return plans


def _schedules(right: RotarySchedule, present: RotarySchedule) -> Named:
    """Single causes, of a server that does not follow the `right` schedule."""
    plain = RotarySchedule.plain(right.geometry)
    m = right.attention_scaling
    # The setting, or one half of it, dropped or applied twice.
    yield "no scaling", "without any scaling", present
    yield "no scaling", "without any scaling", plain
    yield "attention factor", "without its attention factor", replace(right, attention_scaling=1.0)
    yield "attention factor", "with its attention factor twice", _times(right, attention=m)
    yield (
        "attention factor",
        "with the square root of its attention factor",
        replace(right, attention_scaling=m**0.5),
    )
    yield (
        "factors dropped",
        "without its factors, with its attention factor",
        replace(plain, attention_scaling=m),
    )
    yield (
        "factors dropped",
        "without its factors, as the model was before, with its attention factor",
        replace(present, attention_scaling=m * present.attention_scaling),
    )
    # A fingerprint of the unmodified model: the server may follow a plan that was not given.
    if _computed(right) == _computed(present):
        for method in METHODS:
            for ratio in RATIOS[2:]:
                for schedule in _extended(plain, right, method, round(right.length * ratio)):
                    words = f"by {method} to {format_length(schedule.length)}, which was not given"
                    yield FORGOTTEN, f"{words} for this fingerprint (`plan`)", schedule
    # The setting read wrongly: twice, as another method's, or with other values.
    yield from _twice(right)
    for method in METHODS:
        if method != right.method:
            for schedule in _extended(plain, right, method, right.length):
                yield "another method", f"by {method} instead", schedule
    yield from _other_factors(right, plain, RATIOS)
    yield from _other_lengths(right)
    yield from _bases(right, BASES, BASE_RATIOS)


def _pairs(right: RotarySchedule, present: RotarySchedule) -> Named:
    """Two causes at once: a config that was lost loses the base and the scaling."""
    plain = RotarySchedule.plain(right.geometry)
    bare = replace(right, attention_scaling=1.0)
    no_attention = ("attention factor", "without its attention factor")
    factors = list(_other_factors(right, plain, _PAIRED))
    for name, words, schedule in factors:
        without = replace(schedule, attention_scaling=1.0)
        yield f"{name}{AND}{no_attention[0]}", f"{words}{AND}{no_attention[1]}", without
    for name, words, schedule in (
        ("no scaling", "without any scaling", present),
        (*no_attention, bare),
        *factors,
    ):
        for other, also, changed in _bases(schedule, BASES[1:], _PAIRED):
            yield f"{name}{AND}{other}", f"{words}{AND}{also}", changed


def _bases(right: RotarySchedule, bases: Sequence[float], ratios: Sequence[float]) -> Named:
    for base in bases:
        yield "base", f"with base {base:,.0f}", _with_base(right, base)
    for ratio in ratios:
        yield (
            "base",
            f"with {ratio:g} times its base",
            _with_base(right, right.geometry.base * ratio),
        )


def _twice(right: RotarySchedule) -> Named:
    factors, m = right.rescale_factors, right.attention_scaling
    if (factors**2 <= MAX_FACTOR).all():
        yield "applied twice", "applied twice", _times(right, factors, m)
        yield "applied twice", "with its factors twice", _times(right, factors)
    scale = right.length / right.geometry.original_length
    if scale > 1:
        linear = np.full(len(factors), scale)
        yield "applied twice", f"with linear scaling by {scale:g} on top", _times(right, linear)


def _other_factors(right: RotarySchedule, plain: RotarySchedule, ratios: Sequence[float]) -> Named:
    original = right.geometry.original_length
    for ratio in ratios:
        words = f"with {ratio:g} times its factor"
        if len(right.recipe) == 1:
            target = round(right.length * ratio)
            if target > original:
                for schedule in _extended(plain, right, right.method, target):
                    yield "factor", words, schedule
        else:  # of a schedule of no known method, the slowest pair is as slow as its factor
            power = 1 + np.log(ratio) / np.log(max(right.rescale_factors.max(), np.e))
            yield "factor", words, replace(right, rescale_factors=right.rescale_factors**power)


def _other_lengths(right: RotarySchedule) -> Named:
    """The same factor from another original length, which moves a ramp over the pairs."""
    lengths = [round(right.geometry.original_length * ratio) for ratio in RATIOS]
    # A loader that is told of none takes the length that the file states, which is the target.
    for length in dict.fromkeys([*lengths, right.length]):
        scale = right.length / right.geometry.original_length
        geometry = replace(right.geometry, original_length=length)
        words = f"with original length {length:,}"
        start, target = RotarySchedule.plain(geometry), round(length * scale)
        for schedule in _extended(start, right, right.method, target):
            yield "original length", words, replace(schedule, geometry=right.geometry)


def _extended(
    start: RotarySchedule, right: RotarySchedule, method: str, target: int
) -> list[RotarySchedule]:
    """The start extended, with the schedule's own parameters for its own method."""
    parameters = {}
    if method == right.method and len(right.recipe) == 1:
        free = ("target_length", "factor")
        parameters = {k: v for k, v in right.recipe[0].parameters.items() if k not in free}
    try:
        return [extend(start, target, method, parameters)]
    except InputError:  # not every method fits every start
        return []


def _times(
    right: RotarySchedule, factors: np.ndarray | float = 1.0, attention: float = 1.0
) -> RotarySchedule:
    return replace(
        right,
        rescale_factors=np.minimum(right.rescale_factors * factors, MAX_FACTOR),
        attention_scaling=right.attention_scaling * attention,
        recipe=(),
    )


def _with_base(right: RotarySchedule, base: float) -> RotarySchedule:
    """The same factors over another base."""
    geometry = right.geometry
    pairs = np.arange(geometry.pairs)
    moved = (max(base, 1.5) / geometry.base) ** (2 * pairs / geometry.rotary_dim)
    factors = np.clip(right.rescale_factors * moved, 1 / MAX_FACTOR, MAX_FACTOR)
    return replace(right, rescale_factors=factors, recipe=())


def _computed(schedule: RotarySchedule) -> tuple[object, ...]:
    """The computation of a schedule, whatever its name."""
    return (
        tuple(np.round(np.log(schedule.rescale_factors), 6)),
        round(schedule.attention_scaling, 6),
        round(schedule.softmax_scaling, 6),
        schedule.kept_initial_positions,
        schedule.log_n,
    )
