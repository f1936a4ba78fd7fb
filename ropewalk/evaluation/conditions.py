"""Conditions that a model is scored under: unmodified, or following a plan. No torch.

A label is what people read; a condition is known by its plan. Two conditions of one evaluation
never share a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InputError, InvalidValue
from ropewalk.planning.extension import extend_plan
from ropewalk.records import AS_IT_IS
from ropewalk.scaling import rebuild, stacked


class Condition(NamedTuple):
    """A model under a plan, or unmodified (`plan` None)."""

    method: str
    plan_id: str
    plan: ContextPlan | None


def check_methods(methods: Iterable[str], target: int | None) -> None:
    """Refuse unknown methods, and methods without a length to extend to, before a model loads."""
    for method in methods:
        if method != AS_IT_IS:
            stacked(method, AS_IT_IS)
            _length_for(method, target)


def _length_for(method: str, target: int | None) -> int:
    if target is None:
        raise InputError(f"{method} needs a target length; give it (`to`)")
    return target


def conditions_of(
    present: ContextPlan,
    methods: Iterable[str],
    plans: Sequence[ContextPlan] = (),
    target: int | None = None,
) -> list[Condition]:
    """One condition per method and per plan; the unmodified model if nothing is named."""
    conditions = []
    for method in dict.fromkeys(methods) or ([] if plans else [AS_IT_IS]):
        if method == AS_IT_IS:
            conditions.append(Condition(AS_IT_IS, present.id, None))
            continue
        length, layer = _length_for(method, target), present.extended_layer
        plan = extend_plan(present, length, method, layer_types=(layer,))
        conditions.append(Condition(method, plan.id, plan))
    for plan in {plan.id: plan for plan in plans}.values():
        label = plan.provenance.get("methods") or plan.longest(plan.main_layer).method
        if any(label == condition.method for condition in conditions):
            label = f"{label} ({plan.id[:6]})"
        conditions.append(Condition(label, plan.id, plan))
    return conditions


def at_length(plan: ContextPlan, length: int) -> ContextPlan:
    """The plan with dynamic NTK for this very length, as stock has it: a plan holds a few."""
    for layer_type, steps in plan.schedules.items():
        schedule = steps[-1].schedule
        if schedule.method == "dynamic_ntk" and length > schedule.geometry.original_length:
            [rule] = schedule.recipe
            adapted = replace(rule, parameters={**rule.parameters, "target_length": length})
            exact = replace(rebuild([adapted], schedule.geometry), log_n=schedule.log_n)
            plan = plan.with_steps(layer_type, (PlanStep(length, exact),))
    return plan


def default_lengths(
    window: int, conditions: Iterable[Condition], target: int | None = None
) -> tuple[int, ...]:
    """A quarter of the window, then doublings up to the length that all plans reach."""
    reaches = [c.plan.target_length for c in conditions if c.plan is not None]
    end = min(reaches) if reaches else target or window
    length = max(2, min(window, end) // 4)
    lengths = []
    while length < end:
        lengths.append(length)
        length *= 2
    return (*lengths, end)


def check_reach(conditions: Iterable[Condition], lengths: Iterable[int]) -> None:
    """Refuse lengths that a plan does not serve."""
    longest = max(lengths)
    for condition in conditions:
        if condition.plan is not None and longest > condition.plan.target_length:
            raise InvalidValue(
                "lengths",
                longest,
                f"{condition.method} is planned for {condition.plan.target_length} tokens",
                "plan further, or give shorter lengths",
            )
