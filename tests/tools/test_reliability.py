"""The rows of faults: a few cases of each, and the counting of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tools.reliability.row import CannotRun, Case, Row, all_rows
from tools.reliability.running import CANNOT, recorded, run_finds, run_row

ROWS = all_rows()


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.sample])
def test_a_few_cases_of_each_row(name: str, tmp_path: Path) -> None:
    try:
        counts = run_row(ROWS[name], ROWS[name].sample, 7, 10, tmp_path)
    except CannotRun as reason:
        pytest.skip(str(reason))
    assert counts.finds == {}
    assert counts.begun == ROWS[name].sample


def _cases(room: Path, seed: int) -> Iterator[Case]:
    def hang() -> None:
        time.sleep(60)

    def absent() -> None:
        raise CannotRun("no such program")

    yield Case("good", lambda: None)
    yield Case("wrong", lambda: "it lied")
    yield Case("hangs", hang)
    yield Case("dies", lambda: os._exit(3))
    yield Case("raises", lambda: str(1 // 0))
    yield Case("absent", absent)
    yield Case("good again", lambda: None)


def _mended(room: Path, seed: int) -> Iterator[Case]:
    for case in _cases(room, seed):
        yield Case(case.name, lambda name=case.name: "still" if name == "hangs" else None)  # type: ignore[misc]


def test_outcomes_are_counted_and_a_second_run_goes_on(tmp_path: Path) -> None:
    row = Row("row", "a fault", "nothing bad", 7, _cases, seconds=0.05)
    first = run_row(row, 3, 0, 10, tmp_path)
    assert (first.done, first.finds) == (
        3,
        {"wrong: it lied": 1, "hangs: not over after 0.5 s by the clock": 1},
    )
    second = run_row(row, 7, 0, 10, tmp_path)
    assert second.done == 6
    assert second.not_run == {"no such program": 1}
    assert set(second.finds) - set(first.finds) == {
        "dies: its process ended with 3",
        next(said for said in second.finds if "ZeroDivisionError" in said),
    }
    assert recorded("row", tmp_path) == second
    third = run_finds(replace(row, cases=_mended), tmp_path)
    assert (third.done, third.not_run, third.finds) == (6, second.not_run, {"hangs: still": 1})
    assert not any(said.startswith(CANNOT) for said in second.finds)
