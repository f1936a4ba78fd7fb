"""What every scaling method is held to. A new file in scaling/ joins by existing.

`CHECKS` are functions of a method and a case: a model's present schedule, a target and parameters,
drawn by `cases` from the method's own signature. A method may refuse a case by name
(`Unsupported`), but not every case.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from ropewalk import scaling
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InputError, InvalidValue, UnknownName, Unsupported
from ropewalk.lengths import MAX_LENGTH
from ropewalk.models.config import present_plan
from ropewalk.models.stock_config import with_plan
from ropewalk.planning import extension
from ropewalk.scaling import Method, Parameter
from ropewalk.schedule import Recipe, RotaryGeometry, RotarySchedule
from tests.strategies import geometries, scales

ROUNDING = 1e-14  # a few units in the last place

LLAMA2 = RotarySchedule.plain(
    RotaryGeometry(head_dim=128, rotary_dim=128, base=1e4, original_length=4096)
)


@dataclass(frozen=True)
class Case:
    """A call of a method."""

    method: Method[...]
    start: RotarySchedule
    target: int
    parameters: dict[str, Any]

    def schedule(self) -> RotarySchedule:
        return self.method(self.start, self.target, **self.parameters)

    def on(self, start: RotarySchedule) -> Case:
        """The same extension of another start of the same geometry."""
        target = start.length * self.target // self.start.length
        return Case(self.method, start, target, self.parameters)


def refines(method: Method[...], start: RotarySchedule, parameters: dict[str, Any]) -> bool:
    """Whether the method works only at the length that the start serves, as resonance does."""
    try:
        method(start, 2 * start.length, **parameters)
    except InvalidValue as error:
        return error.key == "target_length"
    except Unsupported:
        return False
    return False


def values(parameter: Parameter, pairs: int) -> st.SearchStrategy[object]:
    """Sensible values of a parameter, from its type alone."""
    kind = parameter.kinds[0]
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(1, 64)
    if kind is float:
        return st.floats(math.log(2), math.log(1e7)).map(math.exp)
    return st.lists(st.floats(1.0, 64.0), min_size=pairs, max_size=pairs)


def any_values(parameter: Parameter) -> st.SearchStrategy[object]:
    """Whatever has the type: huge, tiny, negative, not finite, of the wrong count."""
    wild = st.floats() | st.sampled_from([0.0, -1.0, 1e-308, 1e308, -1e308, 1 + 2**-52])
    kind = parameter.kinds[0]
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers() | st.just(10**400)
    return wild if kind is float else st.lists(wild, max_size=8)


@st.composite
def cases(draw: st.DrawFn, method: Method[...]) -> Case:
    """A plain start, a target that the method reaches, and the parameters it cannot do without."""
    start = RotarySchedule.plain(draw(geometries()))
    required = [p for p in method.parameters.values() if p.required]
    parameters = {p.name: draw(values(p, start.geometry.pairs)) for p in required}
    s = 1.0 if refines(method, start, parameters) else draw(scales)
    return Case(method, start, max(start.length, round(start.length * s)), parameters)


@st.composite
def wild_cases(draw: st.DrawFn, method: Method[...]) -> Case:
    """Anything of the right types, required or not."""
    start = RotarySchedule.plain(draw(geometries()))
    target = draw(
        st.integers()
        | st.integers(start.length, 64 * start.length)
        | st.sampled_from([start.length, MAX_LENGTH, MAX_LENGTH + 1, 10**400])
    )
    parameters = {
        p.name: draw(any_values(p))
        for p in method.parameters.values()
        if p.required or draw(st.booleans())
    }
    return Case(method, start, target, parameters)


def served(case: Case) -> RotarySchedule:
    """The schedule of a case, unless the method refuses such a model by name."""
    try:
        return case.schedule()
    except Unsupported:
        assume(False)
        raise


def check_works_on_an_ordinary_model(case: Case) -> None:
    """Methods may refuse some models; none may refuse Llama 2."""
    parameters = {
        key: [2.0] * 64 if isinstance(value, list) else value
        for key, value in case.parameters.items()
    }
    target = LLAMA2.length if refines(case.method, LLAMA2, parameters) else 8 * LLAMA2.length
    schedule = case.method(LLAMA2, target, **parameters)
    assert schedule.length == target


def check_gives_one_finite_positive_factor_a_pair(case: Case) -> None:
    schedule = served(case)
    assert schedule.geometry == case.start.geometry
    assert schedule.length == case.target
    assert schedule.rescale_factors.dtype == np.float64
    assert schedule.rescale_factors.shape == (case.start.geometry.pairs,)
    assert np.isfinite(schedule.rescale_factors).all()
    assert (schedule.rescale_factors > 0).all()
    assert math.isfinite(schedule.attention_scaling)
    assert schedule.attention_scaling > 0


def check_is_the_identity_at_one_where_it_says_so(case: Case) -> None:
    if case.method.identity_at_one:
        same = served(Case(case.method, case.start, case.start.length, case.parameters))
        assert (same.rescale_factors == case.start.rescale_factors).all()
        assert same.attention_scaling == case.start.attention_scaling
        assert same.softmax_scaling == case.start.softmax_scaling


def check_is_monotone_where_it_says_so(case: Case) -> None:
    if case.method.monotone:
        for faster, slower in pairwise(served(case).rescale_factors):
            assert slower >= faster * (1 - ROUNDING)


def check_is_a_function_of_its_arguments(case: Case) -> None:
    before = case.start.dumps()
    assert served(case) == served(case)
    assert case.start.dumps() == before


def check_its_recipe_leads_to_the_identical_schedule(case: Case) -> None:
    schedule = served(case)
    (step,) = schedule.recipe
    assert step.method == case.method.name
    assert set(step.parameters) == {"target_length", *case.method.parameters}
    again = scaling.rebuild(schedule.recipe, case.start.geometry)
    assert again.rescale_factors.tobytes() == schedule.rescale_factors.tobytes()
    assert again == schedule


def check_it_is_called_by_name(case: Case) -> None:
    schedule = served(case)
    by_name = extension.extend(case.start, case.target, case.method.name, case.parameters)
    assert by_name == schedule


def check_round_trips_lose_no_bit(case: Case) -> None:
    """JSON of the schedule and of a plan, the recipe rebuilt from JSON, and pickle."""
    schedule = served(case)
    plan = ContextPlan("m", {FULL_ATTENTION: (PlanStep(case.target, schedule),)})
    from_json = RotarySchedule.loads(schedule.dumps())
    for again in (
        from_json,
        ContextPlan.loads(plan.dumps()).longest(),
        scaling.rebuild(from_json.recipe, from_json.geometry),
        pickle.loads(pickle.dumps(schedule)),
    ):
        assert again.rescale_factors.tobytes() == schedule.rescale_factors.tobytes()
        assert again == schedule
        assert not again.rescale_factors.flags.writeable
        assert not again.inverse_frequencies.flags.writeable


def check_a_stock_config_says_the_same_or_refuses_by_name(case: Case) -> None:
    """A config that follows the plan rotates by the same angles when it is read back."""
    schedule = served(case)
    geometry = schedule.geometry
    config = {
        "model_type": "a type that no table knows",
        "head_dim": geometry.head_dim,
        "partial_rotary_factor": 1.0,
        "rope_theta": geometry.base,
        "max_position_embeddings": geometry.original_length,
        "rope_interleave": geometry.pair_layout == "interleaved",
    }
    plan = ContextPlan("m", {FULL_ATTENTION: (PlanStep(case.target, schedule),)})
    try:
        written = with_plan(config, plan)
    except Unsupported:
        assert schedule.kept_initial_positions or schedule.log_n or schedule.softmax_scaling != 1
        return
    again = present_plan(written).longest()
    assert again.geometry.rotary_dim == geometry.rotary_dim
    np.testing.assert_allclose(
        again.inverse_frequencies, schedule.inverse_frequencies, rtol=1e-9, atol=0
    )
    assert again.attention_scaling == pytest.approx(schedule.attention_scaling, rel=1e-12)


def check_composes_on_a_scaled_start_or_refuses_by_name(case: Case) -> None:
    """A start that is scaled already, as Llama 3.1 is: uneven factors, m ≠ 1, a longer length."""
    pairs = case.start.geometry.pairs
    ramp = 1 + 3 * np.arange(pairs) ** 2 / pairs**2
    step = Recipe("linear", {"target_length": 4 * case.start.length})
    scaled = RotarySchedule(
        case.start.geometry, ramp + 1, 4 * case.start.length, 1.25, 1.5, recipe=(step,)
    )
    composed = case.on(scaled)
    if case.method.geometric_start and pairs > 1:
        with pytest.raises(Unsupported, match=case.method.name):
            composed.schedule()
        return
    schedule = served(composed)
    assert schedule.recipe[:-1] == scaled.recipe
    assert schedule.recipe[-1].method == case.method.name
    assert schedule.length == composed.target
    own = schedule.rescale_factors / scaled.rescale_factors
    again = scaled.rescaled(own, composed.target)
    assert np.allclose(again.rescale_factors, schedule.rescale_factors, rtol=ROUNDING, atol=0)
    # The attention scaling multiplies: on a start with m = 1 the method's own m is left.
    bare = RotarySchedule(scaled.geometry, scaled.rescale_factors, scaled.length)
    m = served(composed.on(bare)).attention_scaling
    assert math.isclose(schedule.attention_scaling, 1.25 * m, rel_tol=ROUNDING)
    if case.method.identity_at_one:
        same = served(Case(case.method, scaled, scaled.length, case.parameters))
        assert (same.rescale_factors == scaled.rescale_factors).all()


def check_a_target_below_the_start_is_refused(case: Case) -> None:
    for target in (case.start.length - 1, 0, -1):
        with pytest.raises(InvalidValue, match=r"^target_length = "):
            case.method(case.start, target, **case.parameters)


def check_an_unknown_parameter_is_refused_with_the_valid_ones(case: Case) -> None:
    for extra in ("bta_fast", "start", "self", "target_length", ""):
        with pytest.raises(UnknownName) as caught:
            extension.extend(
                case.start, case.target, case.method.name, case.parameters | {extra: 1}
            )
        assert caught.value.name == extra
        assert caught.value.valid == tuple(case.method.parameters)


def check_what_it_cannot_do_without_is_asked_for(case: Case) -> None:
    for name in case.parameters:
        rest = {key: value for key, value in case.parameters.items() if key != name}
        with pytest.raises(InvalidValue, match=rf"^{name} = None"):
            extension.extend(case.start, case.target, case.method.name, rest)


def check_says_what_it_is(case: Case) -> None:
    assert case.method.summary
    assert case.method.summary.endswith(".")
    for parameter in case.method.parameters.values():
        assert str(parameter).startswith(f"{parameter.name}=")
        if parameter.default is not None and not parameter.required:
            _, _, text = str(parameter).partition("=")
            assert parameter.parsed(text) == parameter.default


def check_anything_is_a_schedule_or_one_refusal(case: Case) -> None:
    """Takes a wild case. With warnings as errors, also that numpy had nothing to complain of."""
    try:
        schedule = case.schedule()
    except InputError:
        return
    assert RotarySchedule.loads(schedule.dumps()) == schedule


CHECKS: tuple[Callable[[Case], None], ...] = tuple(
    check for name, check in list(globals().items()) if name.startswith("check_")
)
