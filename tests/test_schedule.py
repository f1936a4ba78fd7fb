"""The values: what they refuse, that they cannot change, and that JSON loses no bit."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InputError, InvalidValue
from ropewalk.schedule import MAX_FACTOR, LogN, Recipe, RotaryGeometry, RotarySchedule
from tests.strategies import geometries, recipes, schedules

LLAMA = RotaryGeometry(head_dim=128, rotary_dim=128, base=1e4, original_length=4096)
SMALL = RotaryGeometry(head_dim=8, rotary_dim=4, base=100.0, original_length=16)


def small(**changes: Any) -> RotarySchedule:
    return replace(RotarySchedule.plain(SMALL), **changes)


class TestGeometry:
    @pytest.mark.parametrize(
        ("key", "values", "rule"),
        [
            ("head_dim", [0, -64, 10**9], "must lie between"),
            ("rotary_dim", [0, -2, 10**9], "must lie between"),
            ("rotary_dim", [3, 63, 127], "pairs"),
            ("rotary_dim", [130], "must not be above head_dim = 128"),
            ("base", [1, 1.0, 0, -1e4, 0.5, 1e31], "must be above 1"),
            ("base", [math.nan, math.inf, -math.inf, 10**400, np.float64("nan")], "finite"),
            ("base", ["1e4", None, True, [1e4], 1j], "must be a number"),
            ("original_length", [0, -1, 2**50, 10**5000], "must lie between"),
            ("pair_layout", ["neox", "", None, 3], "half or interleaved"),
        ]
        + [
            (key, [64.0, "64", None, True, np.int64(64), [64]], "must be a whole number")
            for key in ("head_dim", "rotary_dim", "original_length")
        ],
    )
    def test_refuses_by_key_value_and_rule(self, key: str, values: list[Any], rule: str) -> None:
        for value in values:
            with pytest.raises(InvalidValue, match=rule) as caught:
                replace(LLAMA, **{key: value})
            assert caught.value.key == key
            assert str(caught.value).startswith(f"{key} = ")

    def test_base_is_always_a_float(self) -> None:
        bases: list[Any] = [10_000, np.float32(1e4), np.float64(1e4)]
        for base in bases:
            assert type(replace(LLAMA, base=base).base) is float
            assert replace(LLAMA, base=base) == LLAMA

    @given(geometries())
    def test_plain_frequencies_against_the_formula_pair_by_pair(self, g: RotaryGeometry) -> None:
        assert g.plain_frequencies.shape == (g.pairs,) == (g.rotary_dim // 2,)
        for i in {0, g.pairs // 3, g.pairs - 1}:
            expected = math.exp(-2 * i / g.rotary_dim * math.log(g.base))
            assert g.plain_frequencies[i] == pytest.approx(expected, rel=1e-12)

    @given(geometries())
    def test_json_round_trip(self, geometry: RotaryGeometry) -> None:
        text = json.dumps(geometry.to_json())
        assert RotaryGeometry.from_json(json.loads(text)) == geometry


class TestLogN:
    def test_both_forms_of_the_paper_with_n_the_position_plus_one(self) -> None:
        positions = np.array([0, 1, 3, 15, 16, 255])
        logs = [math.log(n, 16) for n in (1, 2, 4, 16, 17, 256)]
        assert LogN("everywhere", 16).scaling(positions) == pytest.approx(logs)
        beyond = LogN("beyond", 16).scaling(positions)
        assert beyond == pytest.approx([1, 1, 1, 1, logs[4], 2.0])
        assert (beyond[:4] == 1).all()  # exactly: a short sequence is left alone

    @pytest.mark.parametrize("count", [1, 15, 16, 40, 160])
    def test_the_mean_of_steps_counts_a_step_that_is_begun(self, count: int) -> None:
        log_n = LogN("steps", 16, 0.1)
        mean = float(log_n.scaling(np.arange(count)).mean())
        assert log_n.mean_scaling(count) == pytest.approx(mean, rel=1e-12)

    def test_a_schedule_without_it_scales_no_query(self) -> None:
        assert (small().query_scaling([[0, 5]]) == np.ones((1, 2))).all()
        log_n = LogN("beyond", 16)
        assert (small(log_n=log_n).query_scaling([99]) == log_n.scaling([99])).all()
        assert small(log_n=log_n).query_scaling(255) == pytest.approx(2.0)

    @pytest.mark.parametrize(
        ("form", "length", "key"),
        [("always", 16, "form"), (None, 16, "form"), ("beyond", 1, "length"),
         ("beyond", 0, "length"), ("beyond", 16.0, "length"), ("beyond", True, "length")],
    )  # fmt: skip
    def test_refuses_other_forms_and_lengths(self, form: Any, length: Any, key: str) -> None:
        with pytest.raises(InvalidValue) as caught:
            LogN(form, length)
        assert caught.value.key == key


class TestRecipe:
    @pytest.mark.parametrize(
        "value", [{"a": 1}, {1}, object, b"x", 1j, math.nan, math.inf, np.int64(1),
                  ["a"], [None], [[1.0]], [math.nan], [True]],
        ids=lambda value: type(value).__name__,
    )  # fmt: skip
    def test_refuses_what_json_cannot_hold(self, value: Any) -> None:
        with pytest.raises(InvalidValue, match=r"^parameters\.p"):
            Recipe("m", {"p": value})

    def test_lists_become_tuples_of_floats(self) -> None:
        expected = Recipe("m", {"f": (1.0, 2.0)})
        for value in ([1, 2], (1, 2.0), np.array([1.0, 2.0])):
            assert Recipe("m", {"f": value}) == expected  # type: ignore[dict-item]
            assert hash(Recipe("m", {"f": value})) == hash(expected)  # type: ignore[dict-item]

    def test_is_frozen_through_and_through(self) -> None:
        given_ = {"a": 1}
        recipe = Recipe("m", given_)
        given_["a"] = 2
        assert recipe.parameters == {"a": 1}
        with pytest.raises(TypeError):
            recipe.parameters["a"] = 2  # type: ignore[index]

    def test_reads_as_a_call(self) -> None:
        recipe = Recipe("longrope", {"target_length": 32, "factors": (1.0, 2.0), "b": None})
        assert str(recipe) == "longrope to 32 (factors [2 values])"

    @given(recipes)
    def test_round_trips(self, recipe: Recipe) -> None:
        text = json.dumps(recipe.to_json(), allow_nan=False)
        assert Recipe.from_json(json.loads(text), "r") == recipe
        assert pickle.loads(pickle.dumps(recipe)) == recipe


class TestSchedule:
    @pytest.mark.parametrize(
        ("key", "values"),
        [
            ("rescale_factors", [[], [1.0], [1.0] * 3, 1.0, [[1.0, 1.0]], [[1.0], [1.0, 2.0]],
                                 "ab", ["1", "2"], [None, 1.0], [True, False], [1j, 1j], None,
                                 [1, 10**400], {"a": 1}]),
            ("rescale_factors[1]", [[1, x] for x in (0.0, -1.0, math.nan, math.inf, -math.inf,
                                                     1e300, 1e-300, 5e-324)]),
            ("length", [0, -1, 2**50, 1.0, "16", None, True, np.int64(16)]),
            ("attention_scaling", [0, -1, math.nan, math.inf, 1e300, 1e-300, "1", None, True]),
            ("softmax_scaling", [0, -1, math.nan, math.inf, 1e300, 1e-300, "1", None, True]),
            ("kept_initial_positions", [-1, 2**50, 1.0, "1", None, True]),
        ],
    )  # fmt: skip
    def test_refuses_by_key_value_and_rule(self, key: str, values: list[Any]) -> None:
        for value in values:
            with pytest.raises(InvalidValue) as caught:
                small(**{key.partition("[")[0]: value})
            assert caught.value.key == key, value
            assert caught.value.rule
            assert caught.value.remedy

    def test_cannot_be_changed(self) -> None:
        factors = np.array([1.0, 2.0])
        schedule = small(rescale_factors=factors)
        factors[0] = 99
        assert schedule.rescale_factors.tolist() == [1.0, 2.0]
        with pytest.raises(FrozenInstanceError):
            schedule.length = 3  # type: ignore[misc]

    @pytest.mark.parametrize(
        "copied",
        [
            lambda s: s,
            copy.copy,
            copy.deepcopy,
            replace,
            lambda s: pickle.loads(pickle.dumps(s)),
            lambda s: RotarySchedule.loads(s.dumps()),
        ],
        ids=["itself", "copy", "deepcopy", "replace", "pickle", "json"],
    )
    def test_arrays_stay_read_only_in_every_copy(
        self, copied: Callable[[RotarySchedule], RotarySchedule]
    ) -> None:
        original = small(rescale_factors=[1.0, 2.5])
        _ = original.inverse_frequencies  # cached before the copy
        schedule = copied(original)
        assert schedule == original
        for array in (
            schedule.rescale_factors,
            schedule.inverse_frequencies,
            schedule.geometry.plain_frequencies,
        ):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 3.0

    @given(schedules())
    def test_round_trips_lose_no_bit(self, schedule: RotarySchedule) -> None:
        for again in (
            RotarySchedule.loads(schedule.dumps()),
            pickle.loads(pickle.dumps(schedule)),
        ):
            assert again == schedule
            assert hash(again) == hash(schedule)
            assert again.rescale_factors.tobytes() == schedule.rescale_factors.tobytes()
            assert again.dumps() == schedule.dumps()
            frequencies = again.inverse_frequencies.tobytes()
            assert frequencies == schedule.inverse_frequencies.tobytes()

    @pytest.mark.parametrize(
        "change",
        [
            {"rescale_factors": [1.0, np.nextafter(1.0, 2.0)]},
            {"length": 17},
            {"attention_scaling": 1.5},
            {"softmax_scaling": 1.5},
            {"kept_initial_positions": 1},
            {"log_n": LogN("beyond", 16)},
            {"recipe": (Recipe("linear"),)},
            {"geometry": replace(SMALL, base=101.0)},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_differ_in_one_field_and_be_unequal(self, change: dict[str, Any]) -> None:
        assert small(**change) != small()
        assert RotarySchedule.loads(small(**change).dumps()) == small(**change)
        assert len({small(), small(**change), small(**change)}) == 2

    @given(schedules(), st.lists(st.integers(0, 2**20), max_size=5))
    def test_angles_are_position_over_base_power_and_factor(
        self, schedule: RotarySchedule, positions: list[int]
    ) -> None:
        """Checked pair by pair in plain Python, n̂ included."""
        g = schedule.geometry
        angles = schedule.angles(positions)
        assert angles.shape == (len(positions), g.pairs)
        assert angles.dtype == np.float64
        for row, position in zip(angles, positions, strict=True):
            for i in {0, g.pairs - 1}:
                kept = position < schedule.kept_initial_positions
                factor = 1.0 if kept else float(schedule.rescale_factors[i])
                expected = position / (g.base ** (2 * i / g.rotary_dim) * factor)
                assert row[i] == pytest.approx(expected, rel=1e-12)

    @given(schedules(), st.integers(0, 2**20))
    def test_cos_and_sin_are_both_multiplied_by_m_at_kept_positions_too(
        self, schedule: RotarySchedule, position: int
    ) -> None:
        for at in {0, schedule.kept_initial_positions, position}:
            cos, sin = schedule.cos_sin(at)
            angles = schedule.angles(at)
            m = schedule.attention_scaling
            assert cos == pytest.approx(m * np.cos(angles), rel=1e-14, abs=0)
            assert sin == pytest.approx(m * np.sin(angles), rel=1e-14, abs=0)
            assert cos**2 + sin**2 == pytest.approx(m * m, rel=1e-12)

    @pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
    @pytest.mark.parametrize("kept", [0, 2])
    def test_positions_of_any_shape(self, shape: tuple[int, ...], kept: int) -> None:
        schedule = small(kept_initial_positions=kept)
        positions = np.arange(math.prod(shape)).reshape(shape)
        assert schedule.angles(positions).shape == (*shape, 2)
        assert [x.shape for x in schedule.cos_sin(positions)] == [(*shape, 2)] * 2
        assert schedule.query_scaling(positions).shape == shape

    def test_kept_initial_positions_end_exactly_there(self) -> None:
        schedule = small(rescale_factors=[4.0, 8.0], kept_initial_positions=3)
        plain = RotarySchedule.plain(SMALL)
        positions = np.arange(6)
        assert (schedule.angles(positions)[:3] == plain.angles(positions)[:3]).all()
        scaled = plain.angles(positions) / [4.0, 8.0]
        assert schedule.angles(positions)[3:] == pytest.approx(scaled[3:], rel=1e-14)

    @given(schedules())
    def test_wavelength_times_frequency_is_a_turn(self, schedule: RotarySchedule) -> None:
        assert schedule.wavelengths * schedule.inverse_frequencies == pytest.approx(
            2 * np.pi, rel=1e-14
        )

    @given(schedules(), st.data())
    def test_rescaled_multiplies_factors_and_m_and_keeps_the_rest(
        self, schedule: RotarySchedule, data: st.DataObject
    ) -> None:
        other = data.draw(schedules(schedule.geometry))
        both = schedule.rescaled(other.rescale_factors, 77, attention_scaling=1.25)
        product = schedule.rescale_factors * other.rescale_factors
        at_the_cap = np.isclose(product, MAX_FACTOR, rtol=1e-6, atol=0)
        assert (both.rescale_factors == np.where(at_the_cap, MAX_FACTOR, product)).all()
        assert both.attention_scaling == schedule.attention_scaling * 1.25
        assert both.length == 77
        rest = replace(
            both,
            rescale_factors=schedule.rescale_factors,
            length=schedule.length,
            attention_scaling=schedule.attention_scaling,
        )
        assert rest == schedule

    @pytest.mark.parametrize("factors", [2.0, [2.0], [[2.0, 2.0]], [2.0] * 3, [], "22", None])
    def test_rescaled_never_broadcasts(self, factors: Any) -> None:
        with pytest.raises(InvalidValue, match="must be 2 numbers"):
            small().rescaled(factors, 16)

    @given(geometries(min_pairs=2), st.floats(1.01, 1e6))
    def test_geometric_base_is_found_where_there_is_one(
        self, geometry: RotaryGeometry, growth: float
    ) -> None:
        plain = RotarySchedule.plain(geometry)
        assert plain.geometric_base == geometry.base
        index = np.arange(geometry.pairs)
        rebased = plain.rescaled(growth ** (2 * index / geometry.rotary_dim), 16)
        assert rebased.geometric_base == pytest.approx(geometry.base * growth, rel=1e-9)
        assert plain.rescaled(np.full(geometry.pairs, growth), 16).geometric_base is None


SCHEDULE = small(log_n=LogN("beyond", 16), recipe=(Recipe("m", {"f": (1.0,)}),)).to_json()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("rescale_factors",), [1.0], r"rescale_factors = '1 values': must be 2 numbers"),
        (("rescale_factors",), "12", r"rescale_factors = '12': must be a list"),
        (("rescale_factors", 1), 0, r"rescale_factors\[1\] = 0\.0: .*above 0"),
        (("rescale_factors", 1), "2", r"rescale_factors\[1\] = '2': must be a number"),
        (("rescale_factors", 1), None, r"rescale_factors\[1\] = None: must be a number"),
        (("rescale_factors", 1), 1e300, r"rescale_factors\[1\] = 1e\+300"),
        (("length",), 0, r"length = 0: must lie"),
        (("length",), 10**300, r"length = 10*\.\.\.0*: must lie"),
        (("attention_scaling",), 0, r"attention_scaling = 0\.0"),
        (("softmax_scaling",), -1, r"softmax_scaling = -1\.0"),
        (("kept_initial_positions",), -1, r"kept_initial_positions = -1"),
        (("geometry",), None, r"geometry = None: must be a JSON object"),
        (("geometry", "rotary_dim"), 10, r"geometry\.rotary_dim = 10: .*head_dim = 8"),
        (("geometry", "base"), 1, r"geometry\.base = 1\.0: must be above 1"),
        (("geometry", "pair_layout"), "x", r"geometry\.pair_layout = 'x'.*half or interleaved"),
        (("geometry", "extra"), 1, r"geometry\.extra = 1: is not a known key"),
        (("log_n",), [], r"log_n = \[\]: must be a JSON object"),
        (("log_n", "form"), "x", r"log_n\.form = 'x'.*everywhere or beyond"),
        (("log_n", "length"), 1, r"log_n\.length = 1: must lie"),
        (("recipe",), {}, r"recipe = \{\}: must be a list"),
        (("recipe", 0), "yarn", r"recipe\[0\] = 'yarn': must be a JSON object"),
        (("recipe", 0, "method"), 1, r"recipe\[0\]\.method = 1: must be a string"),
        (("recipe", 0, "parameters"), [], r"recipe\[0\]\.parameters = \[\]"),
        (("recipe", 0, "parameters", "f"), {}, r"recipe\[0\]\.parameters\.f = \{\}"),
        (("recipe", 0, "parameters", "f"), ["a"], r"recipe\[0\]\.parameters\.f\[0\] = 'a'"),
        (("lenght",), 16, r"lenght = 16: is not a known key; .*known: .*length"),
    ],
)  # fmt: skip
def test_a_hostile_schedule_is_one_refusal_with_its_path(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    whole: Any = json.loads(json.dumps(SCHEDULE))
    part = whole
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(InvalidValue, match=rf"^s\.json: {message}"):
        RotarySchedule.loads(json.dumps(whole), source="s.json")


@pytest.mark.parametrize("key", SCHEDULE)
def test_every_key_of_a_schedule_is_required(key: str) -> None:
    rest = {k: v for k, v in SCHEDULE.items() if k != key}
    with pytest.raises(InvalidValue, match=rf"^s: {key} = None: is missing; add it"):
        RotarySchedule.loads(json.dumps(rest), source="s")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
                    lambda inner: st.lists(inner, max_size=3), max_leaves=4),
       st.data())  # fmt: skip
def test_any_value_anywhere_is_taken_or_refused(value: object, data: st.DataObject) -> None:
    whole: Any = json.loads(json.dumps(SCHEDULE))
    part = whole
    while isinstance(part, dict | list) and part:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(part[key], dict | list) or data.draw(st.booleans()):
            part[key] = value
            break
        part = part[key]
    try:
        schedule = RotarySchedule.loads(json.dumps(whole))
    except InputError:
        return
    assert RotarySchedule.loads(schedule.dumps()) == schedule
    assert np.isfinite(schedule.angles([0, 1, 10**6])).all()
