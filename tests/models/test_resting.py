"""Heads whose slowest pairs rest (Gemma 4): values, theory and plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ropewalk as rw
from ropewalk.errors import InvalidValue
from ropewalk.models.config import present_plan
from ropewalk.planning.ranking import Quantities
from ropewalk.scaling import named, names
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.theory.coverage import coverage
from tests.models.test_published import FOLDER

HEAD = RotaryGeometry(64, 64, 1e6, 4096, resting_pairs=24)
FILE = FOLDER / "gemma-4-e4b.json"


def test_the_slowest_pairs_have_a_frequency_of_zero() -> None:
    whole = replace(HEAD, resting_pairs=0)
    schedule = RotarySchedule.plain(HEAD)
    assert (schedule.inverse_frequencies[8:] == 0).all()
    np.testing.assert_array_equal(schedule.inverse_frequencies[:8], whole.plain_frequencies[:8])
    assert np.isinf(schedule.wavelengths[8:]).all()


def test_a_factor_of_a_resting_pair_says_nothing() -> None:
    factors = np.ones(32)
    factors[20] = 7.0
    assert RotarySchedule(HEAD, factors, 4096) == RotarySchedule.plain(HEAD)


def test_all_pairs_cannot_rest() -> None:
    with pytest.raises(InvalidValue, match="resting_pairs = 32: must lie between 0 and 31"):
        replace(HEAD, resting_pairs=32)


def test_json_holds_them_only_where_there_are_any() -> None:
    assert RotaryGeometry.from_json(HEAD.to_json()) == HEAD
    assert "resting_pairs" not in replace(HEAD, resting_pairs=0).to_json()


@given(st.integers(1, 31), st.floats(2, 1e8))
def test_without_them_the_frequencies_are_the_same(turning: int, base: float) -> None:
    geometry = replace(HEAD, base=base, resting_pairs=32 - turning)
    other = geometry.without_resting_pairs
    assert other.resting_pairs == 0
    np.testing.assert_allclose(
        other.plain_frequencies, geometry.plain_frequencies[:turning], rtol=1e-12
    )


@pytest.mark.parametrize("name", sorted(set(names()) - {"longrope"}))
def test_each_method_leaves_resting_pairs_alone(name: str) -> None:
    start = RotarySchedule.plain(HEAD)
    target = 4096 if name == "resonance" else 16384
    method = named(name)
    own: dict[str, dict[str, Any]] = {"base_change": {"base": 4e6}, "cope": {"pairs": 4}}
    given = own.get(name, {})
    schedule = method(start, target, **given)
    assert (schedule.rescale_factors[8:] == 1).all()
    assert (schedule.inverse_frequencies[8:] == 0).all()
    assert np.isfinite(Quantities.of(start, schedule, target)).all()


def test_the_present_base_is_that_of_the_pairs_that_turn() -> None:
    ntk = named("ntk")(RotarySchedule.plain(HEAD), 16384)
    base = ntk.geometric_base
    assert base is not None
    assert base == pytest.approx(1e6 * 4 ** (64 / 62), rel=1e-9)


def test_a_pair_that_rests_meets_no_new_angle() -> None:
    longer = coverage(RotarySchedule.plain(HEAD), 2**20)
    assert (longer.new_share[8:] == 0).all()


def test_theory_and_plans_take_such_a_model() -> None:
    found = rw.inspect(FILE)
    assert found.plan.schedules == present_plan(FILE).schedules
    planned = rw.plan(FILE, 262144, method="ntk")
    full = planned.plan.longest("full_attention")
    assert (full.inverse_frequencies[64:] == 0).all()
