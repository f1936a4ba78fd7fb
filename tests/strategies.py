"""Geometries and schedules for property tests: every shape a model may have, and some none has."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from ropewalk.schedule import LogN, Recipe, RotaryGeometry, RotarySchedule

bases = st.floats(math.log(2), math.log(1e8)).map(math.exp)
scales = st.just(1.0) | st.floats(1.0, 64.0)
factors = st.floats(math.log(1e-3), math.log(1e6)).map(math.exp)
scalings = st.floats(0.1, 10.0)


@st.composite
def geometries(draw: st.DrawFn, min_pairs: int = 1, max_dim: int = 256) -> RotaryGeometry:
    """Full and partial rotation, heads of odd size, lengths down to a few tokens."""
    head_dim = draw(st.integers(2 * min_pairs, max_dim))
    pairs = draw(st.just(head_dim // 2) | st.integers(min_pairs, head_dim // 2))
    return RotaryGeometry(
        head_dim=head_dim,
        rotary_dim=2 * pairs,
        base=draw(st.sampled_from([1e4, 5e5]) | bases),
        original_length=draw(st.sampled_from([4096, 8192]) | st.integers(2, 2**20)),
        pair_layout=draw(st.sampled_from(["half", "interleaved"])),
    )


parameter_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    | st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4).map(tuple)
)
recipes = st.builds(
    Recipe,
    st.sampled_from(["yarn", "linear", "a method of later"]),
    st.dictionaries(st.sampled_from("abc"), parameter_values),
)


@st.composite
def schedules(draw: st.DrawFn, geometry: RotaryGeometry | None = None) -> RotarySchedule:
    """Schedules with everything set, whether or not a method could lead there."""
    geometry = geometry or draw(geometries())
    return RotarySchedule(
        geometry,
        np.array(draw(st.lists(factors, min_size=geometry.pairs, max_size=geometry.pairs))),
        length=draw(st.integers(1, 2**40)),
        attention_scaling=draw(scalings),
        softmax_scaling=draw(scalings),
        kept_initial_positions=draw(st.integers(0, 64)),
        log_n=draw(
            st.none()
            | st.builds(LogN, st.sampled_from(["everywhere", "beyond"]), st.integers(2, 2**20))
        ),
        recipe=tuple(draw(st.lists(recipes, max_size=2))),
    )
