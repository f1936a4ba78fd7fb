"""Extending by name: methods applied to a schedule, and to all that a model's plan holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ropewalk.arguments import as_list
from ropewalk.context_plan import ContextPlan, PlanStep, ladder
from ropewalk.errors import InputError, InvalidValue, UnknownName, Unsupported
from ropewalk.lengths import format_length
from ropewalk.registered import code_of
from ropewalk.scaling import Method, doublings, log_growth, stacked
from ropewalk.schedule import LogN, LogNForm, RotarySchedule
from ropewalk.untrusted import whole_number


def extend(
    start: RotarySchedule,
    target_length: int,
    methods: str,
    parameters: Mapping[str, object] | None = None,
) -> RotarySchedule:
    """Apply a method by name, or several on top of each other: `yarn+resonance`.

    The first method takes the schedule to the target, the others refine it there. Each takes those
    of the parameters that it has.
    """
    settings = dict(parameters or {})
    chain = stacked(methods)
    for key in settings:
        if not any(key in method.parameters for method in chain):
            valid = dict.fromkeys(key for method in chain for key in method.parameters)
            raise UnknownName(f"parameter of {methods}", key, valid)
    before: list[Method[...]] = []
    for method in chain:
        options = {key: value for key, value in settings.items() if key in method.parameters}
        method.check_parameters(options)
        if before and method.geometric_start and start.geometric_base is None:
            names = "+".join(each.name for each in before)
            raise InputError(
                f"{method.name} needs plain frequencies or a new base, so it cannot follow "
                f"{names}; name it first, or leave one of the two out (`method`)"
            )
        after = method(start, target_length, **options)
        if before and _same(start, after):
            raise _idle(method, before)
        start, before = after, [*before, method]
    return start


def _same(start: RotarySchedule, after: RotarySchedule) -> bool:
    """True if a step changed nothing except by rounding."""
    factors = np.allclose(after.rescale_factors, start.rescale_factors, rtol=1e-9, atol=0)
    plain = replace(start, rescale_factors=after.rescale_factors, recipe=after.recipe)
    return bool(factors) and after == plain


def _idle(method: Method[...], before: Sequence[Method[...]]) -> InputError:
    """The error for a step that changes nothing, such as YaRN if the target is reached."""
    names = "+".join(each.name for each in before)
    fault = f"{method.name} changes nothing after {names}, which reaches the target already; "
    if names == "base_change" and "base" in method.parameters:
        return InputError(
            f"{fault}to change the base first, plan with {method.name} alone and give it the base "
            "(`parameters`: base)"
        )
    return InputError(f"{fault}leave it out (`method`: {names})")


def parsed(methods: str, settings: Mapping[str, object]) -> dict[str, object]:
    """The parameters; texts, such as those of `--set key=value`, in the type of each."""
    declared = {key: each for method in stacked(methods) for key, each in method.parameters.items()}
    for key in settings:
        if key not in declared:
            raise UnknownName(f"parameter of {methods}", key, declared)
    return {
        key: declared[key].parsed(value) if isinstance(value, str) else value
        for key, value in settings.items()
    }


def chosen_layers(present: ContextPlan, layer_types: Iterable[str] | None) -> tuple[str, ...]:
    """The layer types to extend: those that are named, or else the one with full attention."""
    chosen = () if layer_types is None else as_list(layer_types, "layers")
    if not chosen:
        return (present.extended_layer,)
    for layer_type in chosen:
        if layer_type not in tuple(present.schedules):
            raise Unsupported(
                f"{present.model} has no rotating layers of type {layer_type}, only "
                f"{', '.join(present.schedules)}: name the layer types to change"
            )
    return chosen


def only_the_length(present: ContextPlan, planned: ContextPlan) -> bool:
    """True if a plan states another length and changes nothing that the model computes."""
    return planned.target_length != present.target_length and planned.rotates_like(present)


# What a method keeps of its own earlier use: where its ramp lies, and what it does to attention.
_KEPT = (
    *("beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim", "scale_softmax"),
    *("low_freq_factor", "high_freq_factor"),
)


def is_formula(schedule: RotarySchedule) -> bool:
    """True if a scaling is a formula over known plain frequencies, not a list from a search."""
    return bool(schedule.recipe) and all(step.method != "longrope" for step in schedule.recipe)


def begins_plain(present: ContextPlan, methods: str, layer_types: Sequence[str]) -> bool:
    """True if methods cannot go on from the present scaling, and can start from the plain one."""
    first, *_ = stacked(methods)
    starts = [present.longest(layer_type) for layer_type in layer_types]
    return first.geometric_start and any(
        start.geometric_base is None and is_formula(start) for start in starts
    )


def kept_parameters(start: RotarySchedule, methods: str) -> dict[str, object]:
    """The unusual parameters of the present scaling, if the same method starts again.

    Kimi's beta_fast of 1, gpt-oss's ramp without truncation and UltraLong's attention factor of 1
    are properties of these models. An attention factor that follows from the factor does not stay.
    """
    first, *_ = stacked(methods)
    if [step.method for step in start.recipe] != [first.name]:
        return {}
    stated = start.recipe[0].parameters
    kept: dict[str, object] = {
        key: stated[key] for key in _KEPT if key in stated and stated[key] is not None
    }
    attention, factor = stated.get("attention_factor"), stated.get("factor")
    if isinstance(attention, float):
        follows = isinstance(factor, float) and math.isclose(
            attention, log_growth(factor), rel_tol=1e-3
        )
        if not follows:
            kept["attention_factor"] = attention
    return kept


def check_not_shorter(present: ContextPlan, target_length: int) -> None:
    """Refuse a target below the length that the model serves: a plan would only shorten it."""
    served = present.target_length
    if target_length < served:
        raise InvalidValue(
            "to",
            target_length,
            f"must be at least {served}, the length that the model already serves",
            f"give a target above {format_length(served)}; to serve less, limit the server",
        )


def within_trained(present: ContextPlan, length: int, layers: Sequence[str]) -> ContextPlan:
    """The present plan up to a length that its schedules serve: nothing else changes."""
    if length == present.target_length:
        return present
    schedules = {layer: _cut(steps, length) for layer, steps in present.schedules.items()}
    return ContextPlan(present.model, schedules, {"methods": present.longest(layers[0]).method})


def _cut(steps: tuple[PlanStep, ...], length: int) -> tuple[PlanStep, ...]:
    """The same schedules up to another length."""
    shorter = [step for step in steps[:-1] if step.up_to_length < length]
    return (*shorter, replace(steps[len(shorter)], up_to_length=length))


def extend_plan(
    present: ContextPlan,
    target_length: int,
    methods: str,
    parameters: Mapping[str, object] | None = None,
    *,
    layer_types: Sequence[str] | None = None,
    from_original: bool = False,
    log_n: LogNForm | None = None,
    kept_initial_positions: int | None = None,
) -> ContextPlan:
    """The plan that takes a model to the target, from the plan that it follows at present.

    Layer types that are not chosen keep their schedules: sliding-window layers see no distance
    above their window. `from_original` forgets the present scaling and starts from the plain one.
    A target below the trained length changes lengths only, unless parameters ask for more.
    Positions below `kept_initial_positions` (LongRoPE's n̂) keep the plain angles, by any method.
    """
    kept = kept_initial_positions
    if kept is not None and not 0 <= whole_number(kept, "kept_initial_positions") < target_length:
        raise InvalidValue(
            "kept_initial_positions",
            kept,
            f"must be at least 0 and below the target of {target_length}",
            "LongRoPE searches 0 to 256",
        )
    asks = bool(from_original or parameters) or log_n is not None or kept is not None
    chosen = chosen_layers(present, layer_types)
    schedules = {}
    for layer_type, steps in present.schedules.items():
        start = steps[-1].schedule
        within = target_length < start.length and not asks
        if layer_type not in chosen or within:
            schedules[layer_type] = _cut(steps, target_length)
            continue
        if from_original:
            # The model was trained with its own log-n, which is no part of the scaling.
            start = replace(RotarySchedule.plain(start.geometry), log_n=start.log_n)
        if log_n is not None:
            start = replace(start, log_n=LogN(log_n, start.length))
        if kept is not None:
            start = replace(start, kept_initial_positions=kept)

        def extended(start: RotarySchedule, length: int) -> RotarySchedule:
            return extend(start, length, methods, parameters)

        longest = PlanStep(target_length, extended(start, target_length))
        # A method whose factors follow the current length has a step for each doubling on the way.
        shorter: tuple[PlanStep, ...] = ()
        if any(method.by_length for method in stacked(methods)):
            shorter = ladder(extended, start, doublings(start.length, target_length)[:-1])
        schedules[layer_type] = (*shorter, longest)
    return ContextPlan(present.model, schedules, {"methods": methods, **code_of("method", methods)})


HAND_DESIGNED = ("linear", "ntk", "ntk_mixed", "yarn", "llama3", "two_band")


def hand_designed(start: RotarySchedule, length: int) -> dict[str, RotarySchedule]:
    """The schedule of each method at a length.

    A method that does not compose on the start begins at the plain frequencies.
    """
    return {method: _extended(start, length, method) for method in HAND_DESIGNED}


def _extended(start: RotarySchedule, length: int, method: str) -> RotarySchedule:
    try:
        return extend(start, length, method)
    except Unsupported:
        return extend(RotarySchedule.plain(start.geometry), length, method)
