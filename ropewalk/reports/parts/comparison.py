"""The page of two evaluations side by side, on the same samples."""

from __future__ import annotations

import shlex
from pathlib import Path

from ropewalk.blocks import Page, Section, Table
from ropewalk.chart import Chart
from ropewalk.evaluation.compared import ComparedRuns


def page(found: ComparedRuns, out: Path) -> Page:
    line = shlex.join(["ropewalk", "report", found.first, found.second, "-o", str(out)])
    first, second = found.first, found.second
    changes = ", ".join(found.changes) or "nothing that is recorded"
    compared = tuple(each for each in found.blocks() if isinstance(each, Chart | Table))
    return Page(
        f"{first} and {second}",
        found.summary(),
        (f"The runs differ in {changes}.",),
        (Section(f"{first} minus {second}", compared),),
        notes=(f"Made by: `{line}`", f"First run: {first}", f"Second run: {second}"),
    )
