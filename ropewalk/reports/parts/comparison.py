"""The page of two evaluations side by side, on the same samples."""

from __future__ import annotations

import shlex
from pathlib import Path

from ropewalk.evaluation.compared import ComparedRuns
from ropewalk.lengths import format_length
from ropewalk.reports import evaluation
from ropewalk.reports.chart import Chart
from ropewalk.reports.comparison import gain_of, named_task
from ropewalk.reports.page.blocks import Cell, Page, Section, Table
from ropewalk.reports.parts import measured


def page(found: ComparedRuns, out: Path) -> Page:
    line = shlex.join(["ropewalk", "report", found.first, found.second, "-o", str(out)])
    first, second = found.first, found.second
    changes = ", ".join(found.changes) or "nothing that is recorded"
    return Page(
        f"{first} and {second}",
        found.summary(),
        (f"The runs differ in {changes}.",),
        (
            Section("Both runs", tuple(_side_by_side(found))),
            Section(f"{first} minus {second}", (*found.charts(), _table(found))),
        ),
        notes=(f"Made by: `{line}`", f"First run: {first}", f"Second run: {second}"),
    )


def _side_by_side(found: ComparedRuns) -> list[Chart]:
    """Each task of the first run, with the curves of both."""
    first, second = (
        {(c.title, c.y.label): c for c in evaluation.by_length(results)}
        for results in (found.first_results, found.second_results)
    )
    return [
        chart._replace(
            series=tuple(
                own._replace(label=f"{run}: {own.label}")
                for run, charts in ((found.first, first), (found.second, second))
                if key in charts
                for own in charts[key].series
            )
        )
        for key, chart in first.items()
    ]


def _table(found: ComparedRuns) -> Table:
    return Table(
        "On the same samples",
        ("method", "task", "length", "gain of the first", "p (Holm)"),
        tuple(
            (
                Cell(found.label(c)),
                Cell(named_task(c.task, c.metric)),
                Cell(format_length(c.length), c.length),
                measured.gain(c.metric, gain_of(c)),
                measured.p_value(c.adjusted_p),
            )
            for c in found.comparisons
        ),
        measured.HOW,
    )
