"""The page of two evaluations side by side, on the same samples."""

from __future__ import annotations

import shlex
from pathlib import Path

from ropewalk.blocks import Page, Section, Table
from ropewalk.chart import Chart
from ropewalk.evaluation.compared import ComparedRuns


def page(runs: ComparedRuns, out: Path) -> Page:
    line = shlex.join(["ropewalk", "report", runs.first, runs.second, "-o", str(out)])
    first, second = runs.first, runs.second
    changes = ", ".join(runs.changes) or "nothing that is recorded"
    compared = tuple(each for each in runs.blocks() if isinstance(each, Chart | Table))
    return Page(
        f"{first} and {second}",
        runs.summary(),
        (f"The runs differ in {changes}.",),
        (Section(f"{first} minus {second}", compared),),
        notes=(f"Made by: `{line}`", f"First run: {first}", f"Second run: {second}"),
    )
