"""The study of all methods: what is finished is not run again; what is missing is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ropewalk.scaling import names
from studies.methods import measure
from studies.methods.measure import MODELS, Cell, all_cells, current, methods, page, unfinished


def test_every_method_of_the_package_has_cells() -> None:
    assert {*names()} - {*measure.NEEDS_A_SEARCH, *measure.REFINES} <= {*methods()}
    for factor in measure.FACTORS:
        same = measure.alike(factor)
        assert same["ntk"] == same["dynamic_ntk"]
        assert same["two_band"] == same["longrope2"]
        assert same["yarn+cope"] == "yarn+cope"


def test_what_is_missing_is_named_and_not_shown() -> None:
    finished = current()
    assert not unfinished(finished)
    assert len(finished) == len(all_cells())
    lost = Cell("bundled:2", 4, "yarn")
    rest = [
        line
        for line in finished
        if (line["model"], line["factor"], line["method"]) != lost
        and (line["factor"], line["method"]) != (8, "cope")
    ]
    assert unfinished(rest) == ["at 4 times yarn (bundled:2)", "at 8 times cope"]
    table = page(rest)
    assert "Not measured yet: at 4 times yarn (bundled:2); at 8 times cope." in table
    method, at_2, _, at_8, *_ = whole = _cells(page(finished), "yarn")
    assert "–" not in whole
    assert _cells(table, "yarn") == [method, at_2, "–", at_8, "–", "–"]


def _cells(table: str, method: str) -> list[str]:
    """The cells of a method's row."""
    [row] = [line for line in table.splitlines() if line.startswith(f"| {method} |")]
    return row.strip("| ").split(" | ")


def test_cells_of_other_schedules_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = measure.CELLS.read_text().splitlines()
    changed = json.loads(lines[0])
    changed["factors"][3] += 0.5
    monkeypatch.setattr(measure, "CELLS", tmp_path / "cells.jsonl")
    measure.CELLS.write_text("\n".join([json.dumps(changed), *lines[1:]]) + "\n")
    own = Cell(changed["model"], changed["factor"], changed["method"])
    [told] = unfinished(current())
    assert own.method in told
    assert own.model in told


@pytest.mark.slow
def test_what_is_finished_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [Cell(MODELS[0], 2, method) for method in ("none", "cope")]
    monkeypatch.setattr(measure, "CELLS", tmp_path / "cells.jsonl")
    monkeypatch.setattr(measure, "DOCUMENTS", 2)
    monkeypatch.setattr(measure, "all_cells", lambda: cells[:1])
    measure._documents.cache_clear()
    measure.run_missing()
    first = measure.CELLS.read_text()
    monkeypatch.setattr(measure, "all_cells", lambda: cells)
    measure.run_missing()
    assert measure.CELLS.read_text().startswith(first)
    measure.run_missing()
    assert [line["method"] for line in measure.lines()] == ["none", "cope"]
    told = [line for line in capsys.readouterr().out.splitlines() if "to run" in line]
    assert told == ["1 cells to run", "1 cells to run", "0 cells to run"]
    measure._documents.cache_clear()
