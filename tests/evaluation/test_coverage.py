"""How often each kind of interval contains the truth, by simulation: what the docs promise."""

from __future__ import annotations

import json

import pytest

from benchmarks.coverage import RESULTS, ROWS, Row, coverage


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_kind_of_interval_contains_the_truth_as_often_as_its_limit(row: Row) -> None:
    """With a seed of its own: not the one that the docs show."""
    assert coverage(row, 2000, seed=1) >= row.least


def test_the_recorded_coverages_are_within_their_limits() -> None:
    found = json.loads(RESULTS.read_text())["coverage"]
    assert list(found) == [row.name for row in ROWS]
    assert all(found[row.name] >= row.least for row in ROWS)
