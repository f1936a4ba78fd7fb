"""Points and the candidates they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.search.curves import Curves
from ropewalk.search.space import Space
from tests.search.problems import ramp, small_space, spaces


@given(space=spaces(), knots=st.none() | st.integers(2, 9), data=st.data())
def test_every_point_is_a_candidate_and_the_origin_is_the_centre(
    space: Space, knots: int | None, data: st.DataObject
) -> None:
    centre = space.hand_made()[-1]
    curves = Curves(space, centre, knots)
    assert curves.candidate(np.zeros(curves.numbers)) == centre
    numbers = st.lists(st.floats(-1e3, 1e3), min_size=curves.numbers, max_size=curves.numbers)
    point = np.array(data.draw(numbers))
    assert list(space.violations(curves.candidate(point))) == []
    assert curves.candidate(curves.inside(np.zeros(curves.numbers))) == centre


@pytest.mark.parametrize("knots", [None, 3])
def test_what_lies_inside_stays(knots: int | None) -> None:
    space = small_space()
    curves = Curves(space, ramp(space), knots)
    point = np.linspace(0.001, 0.01, curves.numbers)
    np.testing.assert_allclose(curves.inside(point), point, atol=1e-12)


def test_with_one_number_a_pair_it_goes_where_its_candidate_is() -> None:
    space = small_space()
    centre = ramp(space)
    curves = Curves(space, centre)
    rng = np.random.default_rng(0)
    for _ in range(100):
        point = curves.inside(rng.normal(size=curves.numbers))
        factors = np.log(centre.factors) + point[:-1]
        np.testing.assert_allclose(np.exp(factors), curves.candidate(point).factors, atol=0.0051)
        np.testing.assert_allclose(curves.inside(point), point, atol=1e-9)


def test_few_knots_draw_straight_lines() -> None:
    space = small_space()
    centre = space.nearest(np.full(8, 2.0))
    candidate = Curves(space, centre, 2).candidate(np.array([-0.5, 0.5, 0.0]))
    np.testing.assert_allclose(
        np.log(candidate.factors), np.log(2) + np.linspace(-0.5, 0.5, 8), atol=0.005
    )
