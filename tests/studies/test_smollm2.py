"""The study of SmolLM2: what its committed cells are, and how they are summed up."""

from __future__ import annotations

import math

import pytest

from studies.smollm2.cells import DOCUMENTS, Cell, kept
from studies.smollm2.methods import CELLS, METHODS, SHORT, TARGET, mean, table


def cell(document: int, method: str, right: int) -> Cell:
    answers = tuple(i < right for i in range(8))
    return Cell(
        document, f"text {document}@0", method, TARGET, 1.5, (0.5,) * 8, answers, (0.1,) * 8, 1.0
    )


def test_the_committed_cells_are_each_there_once_and_of_the_same_facts() -> None:
    cells = kept(CELLS)
    assert len({each.key for each in cells}) == len(cells) > 0
    for each in cells:
        assert each.method in METHODS
        assert each.length in (TARGET, SHORT)
        assert each.document < DOCUMENTS
        assert len(each.answers) == len(each.right) == len(each.depths) == 8
        assert all(map(math.isfinite, (each.text, *each.answers)))
    sources = {each.document: each.source for each in cells}
    assert all(each.source == sources[each.document] for each in cells)


def test_a_difference_is_paired_over_documents() -> None:
    cells = [cell(i, "yarn", 4 + i % 3) for i in range(6)]
    cells += [cell(i, "linear", 2 + i % 3) for i in range(6)]
    apart = mean(cells, "yarn", TARGET, "right", "linear")
    assert apart is not None
    assert apart.interval == pytest.approx((0.25, 0.25))
    assert mean(cells[:6], "linear", TARGET, "right") is None


def test_a_share_that_is_the_same_everywhere_keeps_a_width() -> None:
    own = mean([cell(i, "linear", 0) for i in range(6)], "linear", TARGET, "right")
    assert own is not None
    assert own.interval is not None
    assert own.interval[1] > 0.02
    assert "| linear | 16k | 6 | 0% (0 to" in table([cell(i, "linear", 0) for i in range(6)])
