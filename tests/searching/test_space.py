"""Table 4's space, and the schedules that its points stand for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InvalidValue
from ropewalk.scaling import linear, longrope, ntk, rebuild, yarn
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.searching.model.settings import (
    SearchSettings,
    legs_of,
    published_space,
    space_of,
)
from ropewalk.searching.space import KEPT_POSITIONS, Candidate, Space, monotone
from ropewalk.theory.coverage import critical_pair
from tests.searching.problems import SMALL, small_space, spaces, violations

LLAMA = RotarySchedule.plain(RotaryGeometry(128, 128, 1e4, 4096))
wild = st.floats(-1e6, 1e6)


def test_the_ranges_are_those_of_table_4() -> None:
    space = Space(LLAMA, 4 * 4096)
    assert (space.lowest == 1).all()
    assert space.highest == 8
    assert published_space(space).highest == 5
    assert space.kept_positions == (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 64, 128, 256)
    hundred = RotarySchedule.plain(RotaryGeometry(128, 128, 1e4, 100))
    # Floats put 1.25 · 1.04 just below it.
    assert Space(hundred, 104, highest_factor=1.25 * 1.04).highest == 1.3


def test_the_seeds_are_the_methods_on_the_grid() -> None:
    space = Space(LLAMA, 4 * 4096)
    for seed, method in zip(space.seeds(), (linear, ntk, yarn), strict=True):
        made = method.schedule(LLAMA, 4 * 4096)
        assert np.abs(np.array(seed.factors) - made.rescale_factors).max() <= 0.005 + 1e-12
        assert seed.attention_scaling == pytest.approx(made.attention_scaling, abs=0.005)
        assert seed.kept_initial_positions == 0


def test_m_and_kept_positions_can_be_held() -> None:
    space = Space(LLAMA, 8192, attention_scaling=1.0, stock_runtimes=True)
    assert {seed.attention_scaling for seed in space.hand_designed()} == {1.0}
    assert space.kept_positions == (0,)
    assert space.nearest(np.ones(64), 1.2, 64) == Candidate((1.0,) * 64, 0, 1.0)


def test_a_candidate_tells_which_ends_of_the_space_it_lies_on() -> None:
    space = Space(LLAMA, 4 * 4096)
    inside = space.nearest(np.linspace(1, 7.99, 64), 1.1, 64)
    assert space.bounds_met(inside) == ()
    edge = space.nearest(np.linspace(1, 9, 64), 9.0, 256)
    at_most = sum(factor == 8 for factor in edge.factors)
    assert space.bounds_met(edge) == (
        f"{at_most} of 64 rescale factors are 8, the largest that is searched",
        f"the attention scaling is {space.scalings[-1]:g}, the largest that is searched",
        "n̂ is 256, the largest that is searched",
    )
    [low] = space.bounds_met(space.nearest(np.ones(64), 0.1))
    assert low == "the attention scaling is 0.8, the smallest that is searched"
    # What is held is not searched.
    held = Space(LLAMA, 8192, attention_scaling=1.0, stock_runtimes=True)
    assert held.bounds_met(held.nearest(np.ones(64), 1.0)) == ()


@given(space=spaces(), data=st.data())
def test_whatever_is_asked_for_the_nearest_is_in_the_space(
    space: Space, data: st.DataObject
) -> None:
    factors = data.draw(st.lists(wild, min_size=space.pairs, max_size=space.pairs))
    candidate = space.nearest(factors, data.draw(wild), data.draw(st.integers(0, 10**6)))
    assert list(violations(space, candidate)) == []
    assert (
        space.at(
            space.steps(candidate), candidate.attention_scaling, candidate.kept_initial_positions
        )
        == candidate
    )


@given(space=spaces())
def test_a_candidate_composes_on_the_start(space: Space) -> None:
    candidate = space.hand_designed()[-1]
    schedule = space.schedule(candidate)
    over = np.ones(space.pairs) if space.recover else space.start.rescale_factors[: space.pairs]
    factors, resting = np.split(schedule.rescale_factors, [space.pairs])
    np.testing.assert_allclose(factors, over * candidate.factors, rtol=1e-12)
    assert (resting == 1).all()
    assert schedule.attention_scaling == pytest.approx(
        space.start.attention_scaling * candidate.attention_scaling
    )
    assert schedule.length == space.target_length
    assert schedule.recipe[-1].method == "longrope"
    assert rebuild(schedule.recipe, schedule.geometry) == schedule


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"factors": (1.0,) * 7}, "7 factors for 8 pairs"),
        ({"factors": (1.005, *(2.0,) * 7)}, "between two steps"),
        ({"factors": (0.99, *(2.0,) * 7)}, "outside its range"),
        ({"factors": (*(2.0,) * 7, 8.01)}, "outside its range, at most 8"),
        ({"factors": (*(2.0,) * 7, 1.99)}, "fall"),
        ({"kept_initial_positions": 3}, "n̂ = 3"),
        ({"attention_scaling": 3.0}, "m = 3"),
    ],
)
def test_what_breaks_a_constraint_is_named(change: dict[str, object], complaint: str) -> None:
    space = small_space()
    good = {"factors": (2.0,) * 8, "kept_initial_positions": 0, "attention_scaling": 1.0}
    assert list(violations(space, Candidate(**good))) == []  # type: ignore[arg-type]
    found = list(violations(space, Candidate(**good | change)))  # type: ignore[arg-type]
    assert len(found) == 1
    assert complaint in found[0]


def test_pairs_beyond_the_critical_one_are_stretched_by_s_at_least() -> None:
    space = Space(LLAMA, 4 * 4096, beyond_critical=True)
    published = math.ceil(64 * math.log(4096 / (2 * math.pi), 1e4))
    assert space.critical_pair == published == critical_pair(LLAMA)
    assert (space.lowest[published:] == 4).all()
    assert (space.lowest[:published] == 1).all()
    assert all(list(violations(space, seed)) == [] for seed in space.hand_designed())


def test_an_extended_start_counts_from_where_it_is() -> None:
    extended = yarn.schedule(RotarySchedule.plain(SMALL), 512)
    space = Space(extended, 2048)
    assert space.highest == 8
    assert published_space(space).highest == 5
    assert len(space.hand_designed()) == 4  # YaRN's ramp by wavelength takes YaRN's place
    again = Space(space.schedule(space.seeds()[2]), 8192)
    assert again.schedule(again.seeds()[0]).rescale_factors.max() == pytest.approx(64, rel=0.01)


def test_recovery_is_over_the_plain_frequencies_and_below_the_extension() -> None:
    extended = longrope.schedule(RotarySchedule.plain(SMALL), 128 * 64, factors=[64.0] * 8)
    space = Space(extended, 128, recover=True)
    assert space.highest == 16  # 2 · √64
    plain, present, between = space.seeds()
    np.testing.assert_allclose(space.schedule(plain).rescale_factors, 1.0)
    assert present.factors == (16.0,) * 8
    assert between.factors == (8.0,) * 8
    assert Space(extended, 128, recover=True, highest_factor=2).highest == 2


@pytest.mark.parametrize("target", [64, 128])
def test_a_short_target_is_for_recovery(target: int) -> None:
    with pytest.raises(InvalidValue, match=rf"to = {target}: must be above 128.*recovery"):
        Space(RotarySchedule.plain(SMALL), target)
    with pytest.raises(InvalidValue, match="to = 129: recovery is for"):
        Space(RotarySchedule.plain(SMALL), 129, recover=True)


@pytest.mark.parametrize(("base", "turning", "bounded"), [(100.0, 8, 0), (1e4, 8, 4), (1e4, 3, 0)])
def test_only_pairs_that_turn_and_complete_no_turn_are_bounded(
    base: float, turning: int, bounded: int
) -> None:
    geometry = RotaryGeometry(16, 16, base, 512, resting_pairs=8 - turning)
    space = Space(RotarySchedule.plain(geometry), 2048, beyond_critical=True)
    assert (space.lowest == 4).sum() == bounded
    assert all(list(violations(space, seed)) == [] for seed in space.hand_designed())


def test_recovery_has_no_such_bound() -> None:
    extended = longrope.schedule(RotarySchedule.plain(SMALL), 128 * 64, factors=[64.0] * 8)
    with pytest.raises(InvalidValue, match=r"^beyond_critical = True: .*recovery"):
        Space(extended, 128, recover=True, beyond_critical=True)


def test_of_two_legs_the_bound_is_for_the_one_that_extends() -> None:
    settings = SearchSettings(512, beyond_critical=True, recover=True)
    plain = RotarySchedule.plain(SMALL)
    legs = [space_of(start, length, settings) for _, start, length in legs_of(plain, settings)]
    assert [space.beyond_critical for space in legs] == [True, False]
    assert not space_of(plain, 512, SearchSettings(512)).beyond_critical


@given(st.lists(wild, min_size=1, max_size=12))
def test_pooling_gives_the_nearest_sequence_that_never_falls(values: list[float]) -> None:
    array = np.array(values)
    pooled = monotone(array)
    assert (np.diff(pooled) >= 0).all()
    # The projection on a cone: what is taken away is orthogonal to what is left, and no other
    # member of the cone lies nearer in any direction.
    away = array - pooled
    size = 1e-6 * (1 + np.abs(array).max() ** 2) * len(values)
    assert abs(away @ pooled) <= size
    assert (np.cumsum(away[::-1]) <= size).all()
    assert (monotone(np.sort(array)) == np.sort(array)).all()


def test_kept_positions_do_not_exceed_the_target() -> None:
    short = Space(RotarySchedule.plain(RotaryGeometry(8, 8, 100.0, 8)), 16)
    assert short.kept_positions == KEPT_POSITIONS[:6]
