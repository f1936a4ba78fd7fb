"""Points and the candidates they stand for."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.searching.coordinates import Coordinates
from ropewalk.searching.space import Space
from tests.searching.problems import ramp, small_space, spaces, violations


@given(space=spaces(), data=st.data())
def test_every_point_is_a_candidate_and_the_origin_is_the_centre(
    space: Space, data: st.DataObject
) -> None:
    centre = space.hand_designed()[-1]
    coordinates = Coordinates(space, centre)
    assert coordinates.candidate(np.zeros(coordinates.numbers)) == centre
    assert not coordinates.point(centre).any()
    count = coordinates.numbers
    point = np.array(data.draw(st.lists(st.floats(-1e3, 1e3), min_size=count, max_size=count)))
    candidate = coordinates.candidate(point)
    assert list(violations(space, candidate)) == []
    assert coordinates.candidate(coordinates.point(candidate)) == candidate


def test_inside_the_space_a_candidate_is_where_its_point_is() -> None:
    space = small_space()
    coordinates = Coordinates(space, ramp(space, kept=8))
    # The factors rise, so no order is lost; the grid is 0.01, and n̂ has 14 values.
    point = np.array([*np.linspace(0.01, 0.1, space.pairs), 0.3, 0.5])
    found = coordinates.point(coordinates.candidate(point))
    np.testing.assert_allclose(found[:-2], point[:-2], atol=0.0051 / (0.2 * math.log(5)))
    assert abs(found[-2] - point[-2]) < 0.051
    assert abs(found[-1] - point[-1]) < 0.2


def test_a_unit_is_a_change_worth_trying() -> None:
    space = small_space()
    centre = space.nearest(np.ones(space.pairs), 1.0)
    found = Coordinates(space, centre).candidate(np.ones(space.pairs + 2))
    np.testing.assert_allclose(found.factors, 8**0.2, atol=0.0051)
    assert found.attention_scaling == 1.11
    assert found.kept_initial_positions == 2  # 3 is not among the values of n̂
