"""The page of two evaluations side by side, on the same samples."""

from __future__ import annotations

import shlex
from pathlib import Path

from ropewalk.blocks import Page, Section, Table
from ropewalk.chart import Chart
from ropewalk.evaluation import charts
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
        (
            Section("Both runs", tuple(_side_by_side(found))),
            Section(f"{first} minus {second}", compared),
        ),
        notes=(f"Made by: `{line}`", f"First run: {first}", f"Second run: {second}"),
    )


def _side_by_side(found: ComparedRuns) -> list[Chart]:
    """Each task of the first run, with the curves of both."""
    first, second = (
        {(c.title, c.y.label): c for c in charts.by_length(results)}
        for results in (found.first_results, found.second_results)
    )
    return [
        chart._replace(
            series=tuple(
                own._replace(label=f"{run}: {own.label}")
                for run, drawn in ((found.first, first), (found.second, second))
                if key in drawn
                for own in drawn[key].series
            )
        )
        for key, chart in first.items()
    ]
