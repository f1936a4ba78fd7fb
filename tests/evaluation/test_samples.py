from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.evaluation.samples import DoesNotFit, _fit

growing = st.lists(st.integers(1, 60), min_size=1, max_size=40).map(
    lambda sizes: [5, *(5 + np.cumsum(np.tile(sizes, 60))).tolist()]
)


@given(growing, st.integers(5, 900), st.integers(0, 200))
def test_the_most_units_that_fit_are_found_wherever_the_search_begins(
    tokens: list[int], length: int, guess: int
) -> None:
    asked: list[int] = []

    def count(units: int) -> int:
        asked.append(units)
        return tokens[min(units, len(tokens) - 1)] if units < len(tokens) else 10**6

    units = _fit(count, length, "task", guess=guess)
    assert tokens[units] <= length
    assert units + 1 == len(tokens) or tokens[units + 1] > length
    assert len(asked) <= 24


def test_nothing_fits_below_the_shortest() -> None:
    with pytest.raises(DoesNotFit, match=r"task does not fit in 4 tokens: its shortest .* takes 5"):
        _fit(lambda units: 5 + units, 4, "task", guess=7)
