from __future__ import annotations

import pytest

import ropewalk as rw
from ropewalk.planning.measured import MeasuredMethod, measured, measurements


def test_every_row_is_a_share_of_facts_on_some_models() -> None:
    rows = measurements()
    assert len({(row.method, row.factor, row.steps) for row in rows}) == len(rows)
    for row in rows:
        assert 0 <= row.retrieved[0] <= row.retrieved[1] <= row.best[1] <= 1
        assert 0 <= row.refuted <= row.models


def test_the_nearest_factor_is_taken() -> None:
    for scale, factor in ((1.5, 2), (5, 4), (6, 8), (1000, 8)):
        found = measured("linear", scale, trained=False)
        assert found is not None
        assert (found.factor, found.steps) == (factor, 0)
    assert measured("longrope", 4, trained=False) is None


def test_refuted_on_most_models_is_refuted() -> None:
    row = MeasuredMethod("linear", 4, 0, 5, (0.0, 0.004), (0.2, 0.9), 3)
    assert row.is_refuted
    assert not row._replace(refuted=2).is_refuted
    assert "0% retrieved, by the best method 20 to 90%" in str(row)
    assert "linear retrieved less than half as much as the best method on 3 of 5" in row.warning


@pytest.mark.parametrize(("method", "warned"), [("linear", True), ("yarn", False)])
def test_a_refuted_method_is_planned_with_a_warning(method: str, warned: bool) -> None:
    said: list[str] = []
    rw.plan("llama-2-7b", "32k", method, notice=said.append)
    assert any("linear retrieved less than half" in each for each in said) == warned
    assert len(said) == warned
