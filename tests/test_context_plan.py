"""The plan: it picks the schedule of a length, refuses what cannot be one, and loses no bit."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep, ladder
from ropewalk.errors import InputError, InvalidValue
from ropewalk.scaling import dynamic_ntk, linear
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from tests.strategies import geometries, schedules

GEOMETRY = RotaryGeometry(head_dim=8, rotary_dim=4, base=100.0, original_length=16)
PLAIN = RotarySchedule.plain(GEOMETRY)
LONG = linear.schedule(PLAIN, 64)


def plan(*steps: PlanStep, **more: Any) -> ContextPlan:
    return ContextPlan("m", {FULL_ATTENTION: steps}, **more)


PAIR = plan(PlanStep(16, PLAIN), PlanStep(64, LONG))


@st.composite
def plans(draw: st.DrawFn) -> ContextPlan:
    target = draw(st.integers(8, 2**40))
    text = st.text(st.characters().filter(str.isprintable), max_size=8)

    def steps() -> tuple[PlanStep, ...]:
        geometry = draw(geometries(max_dim=16))
        shorter = draw(st.lists(st.integers(1, target - 1), max_size=2, unique=True))
        lengths = [*sorted(shorter), target]
        return tuple(PlanStep(length, draw(schedules(geometry))) for length in lengths)

    layer_types = draw(st.lists(text, min_size=1, max_size=2, unique=True))
    by_type = {name: steps() for name in layer_types}
    return ContextPlan(draw(text), by_type, draw(st.dictionaries(text, text, max_size=2)))


class TestChoosing:
    def test_each_length_gets_the_first_step_that_reaches_it(self) -> None:
        for length, expected in [(1, PLAIN), (16, PLAIN), (17, LONG), (64, LONG)]:
            assert PAIR.schedule(length) is expected
        assert PAIR.target_length == 64
        assert PAIR.longest() is LONG

    def test_beyond_the_target_is_refused(self) -> None:
        with pytest.raises(
            InvalidValue, match=r"^length = 65: .* up to 64; create a plan for a longer"
        ):
            PAIR.schedule(65)

    def test_a_layer_type_that_is_not_covered_is_refused(self) -> None:
        for ask in (PAIR.steps, PAIR.longest, partial(PAIR.schedule, 8)):
            with pytest.raises(InvalidValue):
                ask("chunked")

    def test_layer_types_choose_apart(self) -> None:
        both = ContextPlan(
            "m", {"full_attention": PAIR.steps(), "sliding_attention": (PlanStep(64, PLAIN),)}
        )
        assert both.schedule(64) is LONG
        assert both.schedule(64, "sliding_attention") is PLAIN
        longer = both.with_steps(FULL_ATTENTION, (PlanStep(128, LONG),))
        assert longer.longest("sliding_attention") == PLAIN
        assert longer.target_length == 128


class TestLadder:
    def test_is_the_method_called_at_each_length_from_the_same_start(self) -> None:
        lengths = (8, 16, 17, 32, 100)
        method = partial(dynamic_ntk.schedule, factor=2.0)
        steps = ladder(method, PLAIN, lengths)
        assert [step.up_to_length for step in steps] == list(lengths)
        assert [step.schedule for step in steps] == [
            PLAIN, PLAIN, *(method(PLAIN, length) for length in lengths[2:])
        ]  # fmt: skip

    @given(geometries(min_pairs=2), st.lists(st.integers(1, 2**24), min_size=1, unique=True))
    def test_the_plan_serves_short_sequences_with_the_start_and_grows_from_there(
        self, geometry: RotaryGeometry, lengths: list[int]
    ) -> None:
        start = RotarySchedule.plain(geometry)
        rungs = ladder(dynamic_ntk.schedule, start, sorted(lengths))
        served = plan(*rungs)
        for length in lengths:
            schedule = served.schedule(length)
            assert schedule.length >= length
            if length <= start.length:
                assert schedule is start
        last = [step.schedule.rescale_factors[-1] for step in rungs]
        assert last == sorted(last)

    def test_rungs_that_fall_make_no_plan(self) -> None:
        with pytest.raises(InvalidValue, match="sort the steps by length"):
            plan(*ladder(linear.schedule, PLAIN, (64, 32)))


class TestValue:
    @given(plans())
    def test_round_trips_lose_no_bit(self, value: ContextPlan) -> None:
        text = value.dumps()
        for again in (
            ContextPlan.loads(text),
            pickle.loads(pickle.dumps(value)),
            copy.deepcopy(value),
        ):
            assert again == value
            assert hash(again) == hash(value)
            assert again.id == value.id
            assert again.dumps() == text
            for name, steps in value.schedules.items():
                for mine, theirs in zip(steps, again.steps(name), strict=True):
                    bits = mine.schedule.rescale_factors.tobytes()
                    assert theirs.schedule.rescale_factors.tobytes() == bits

    def test_a_file_is_read_back(self, tmp_path: Path) -> None:
        path = tmp_path / "plan.json"
        path.write_text(PAIR.dumps(), encoding="utf-8")
        assert ContextPlan.read(path) == PAIR
        assert ContextPlan.read(str(path)) == PAIR

    def test_cannot_be_changed(self) -> None:
        given_ = {FULL_ATTENTION: [PlanStep(16, PLAIN)]}
        value = ContextPlan("m", given_, {"seed": "1"})  # type: ignore[arg-type]
        given_[FULL_ATTENTION].append(PlanStep(64, LONG))
        given_["more"] = []
        assert value == plan(PlanStep(16, PLAIN), provenance={"seed": "1"})
        with pytest.raises(TypeError):
            value.schedules["more"] = ()  # type: ignore[index]
        with pytest.raises(TypeError):
            value.provenance["seed"] = "2"  # type: ignore[index]
        with pytest.raises(AttributeError):
            value.model = "n"  # type: ignore[misc]

    def test_the_id_names_the_schedules_and_nothing_else(self) -> None:
        same = ContextPlan("other", PAIR.schedules, {"made": "later"})
        assert same.id == PAIR.id
        assert same != PAIR
        types = {"a": (PlanStep(64, LONG),), "b": (PlanStep(64, PLAIN),)}
        turned = dict(reversed(types.items()))
        assert ContextPlan("m", types).id == ContextPlan("m", turned).id
        assert ContextPlan("m", types) == ContextPlan("m", turned)
        one_bit = LONG.rescaled([1.0, np.nextafter(1.0, 2.0)], 64)
        others = [
            plan(PlanStep(17, PLAIN), PlanStep(64, LONG)),
            plan(PlanStep(16, PLAIN), PlanStep(64, one_bit)),
            plan(PlanStep(64, LONG)),
            ContextPlan("m", {"sliding_attention": PAIR.steps()}),
        ]
        assert len({other.id for other in [*others, PAIR]}) == 5

    def test_the_id_is_that_of_earlier_versions(self) -> None:
        assert PAIR.id == "941bae1d8a8feb04"

    @pytest.mark.parametrize("length", [0, -1, 2**50, True, 16.0, "16", None, np.int64(16)])
    def test_a_step_has_a_whole_length_in_range(self, length: Any) -> None:
        with pytest.raises(InvalidValue, match=r"^up_to_length = .*must (lie|be a whole number)"):
            PlanStep(length, PLAIN)

    @pytest.mark.parametrize(
        ("by_type", "message"),
        [
            ({}, "at least one layer type"),
            ({"full_attention": ()}, r"schedules\.full_attention = \(\): .*at least one step"),
            (
                {"a": (PlanStep(64, LONG), PlanStep(16, PLAIN))},
                r"schedules\.a\[1\]\.up_to_length = 16: .*before serves 64",
            ),
            ({"a": (PlanStep(16, PLAIN), PlanStep(16, LONG))}, "lengths must increase"),
            (
                {"a": (PlanStep(16, PLAIN),), "b": (PlanStep(64, LONG),)},
                r"schedules = \{'a': 16, 'b': 64\}: must end at the same length",
            ),
            (
                {"a": (PlanStep(16, PLAIN), PlanStep(64, RotarySchedule.plain(
                    RotaryGeometry(8, 8, 100.0, 16))))},
                "all have the same pretrained geometry",
            ),
        ],
    )  # fmt: skip
    def test_what_cannot_be_a_plan_is_refused(
        self, by_type: dict[str, tuple[PlanStep, ...]], message: str
    ) -> None:
        with pytest.raises(InvalidValue, match=message):
            ContextPlan("m", by_type)


def hostile(path: tuple[str | int, ...], value: object) -> str:
    whole: Any = PAIR.to_json()
    part = whole
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return json.dumps(whole)


STEPS = ("schedules", "full_attention")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (hostile(("format",), "ropewalk-plan-2"), r"format = 'ropewalk-plan-2': must be 'ropewalk"),
        (hostile(("format",), 1), r"format = 1: must be a string"),
        (hostile(("model",), None), r"model = None: must be a string"),
        (hostile(("extra",), 1), r"extra = 1: is not a known key; .*known: format, "),
        (hostile(("schedules",), []), r"schedules = \[\]: must be a JSON object"),
        (hostile(STEPS, {}), r"schedules\.full_attention = \{\}: must be a list of steps"),
        (hostile((*STEPS, 0), 3), r"schedules\.full_attention\[0\] = 3: must be a JSON object"),
        (hostile((*STEPS, 1, "up_to_length"), 16),
         r"schedules\.full_attention\[1\]\.up_to_length = 16: lengths must increase"),
        (hostile((*STEPS, 1, "up_to_length"), True),
         r"schedules\.full_attention\[1\]\.up_to_length = True: must be a whole number"),
        (hostile((*STEPS, 1, "extra"), 0), r"schedules\.full_attention\[1\]\.extra = 0: is not"),
        (hostile((*STEPS, 1, "schedule"), None),
         r"schedules\.full_attention\[1\]\.schedule = None: must be a JSON object"),
        (hostile((*STEPS, 1, "schedule", "rescale_factors", 1), 0),
         r"schedules\.full_attention\[1\]\.schedule\.rescale_factors\[1\] = 0\.0: .*above 0"),
        (hostile(("provenance",), []), r"provenance = \[\]: must be a JSON object"),
        (hostile(("provenance",), {"a": 1}), r"provenance\.a = 1: must be a string"),
        (PAIR.dumps().replace('"model"', '"model": "x", "model"', 1), r"model = .*stands twice"),
        ("3", r"= 3: must be a JSON object"),
    ],
)  # fmt: skip
def test_a_hostile_plan_is_one_refusal_with_its_path(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InvalidValue, match=rf"p\.json:? {message}") as caught:
        ContextPlan.read(path)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy in str(caught.value)


@pytest.mark.parametrize("key", PAIR.to_json())
def test_every_key_of_a_plan_is_required(key: str) -> None:
    rest = {k: v for k, v in PAIR.to_json().items() if k != key}
    with pytest.raises(InvalidValue, match=rf"^plan: {key} = None: is missing"):
        ContextPlan.loads(json.dumps(rest))


@pytest.mark.filterwarnings("ignore:plan. the plan has been edited since")
@given(st.data())
def test_a_plan_with_any_byte_changed_is_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(PAIR.dumps().encode())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(32, 126))
    try:
        value = ContextPlan.loads(text.decode())
    except InputError:
        return
    assert ContextPlan.loads(value.dumps()) == value


def test_lengths_and_recipes_are_no_part_of_how_a_plan_rotates() -> None:
    renamed = replace(LONG, length=128, recipe=())
    longer = plan(PlanStep(16, PLAIN), PlanStep(128, renamed))
    assert longer.rotates_like(PAIR)
    assert PAIR.rotates_like(longer)
    changed = replace(LONG, attention_scaling=1.5)
    assert not plan(PlanStep(16, PLAIN), PlanStep(128, changed)).rotates_like(PAIR)
    assert not plan(PlanStep(64, LONG)).rotates_like(PAIR)
    assert not ContextPlan("m", {"other": PAIR.steps()}).rotates_like(PAIR)


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("provenance.methods", lambda text: plan(PAIR.steps()[0], provenance={"methods": text})),
        ("provenance", lambda text: plan(PAIR.steps()[0], provenance={text: "yarn"})),
        ("model", lambda text: ContextPlan(text, PAIR.schedules)),
        ("schedules", lambda text: ContextPlan("m", {text: PAIR.steps()})),
    ],
)
@pytest.mark.parametrize("text", ["two\nlines", "\x1b[31mred", "a\u2028b", "tab\t"])
def test_a_label_is_one_line(key: str, make: Callable[[str], object], text: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^{key} = .*: must be one line") as refused:
        make(text)
    assert str(refused.value).isprintable()
