"""The page of two evaluations side by side, on the same samples."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ropewalk.evaluation.compared import ComparedRuns
from ropewalk.evaluation.results import value_in_words
from ropewalk.lengths import format_length
from ropewalk.records import NLL, PERPLEXITY, EvalResult
from ropewalk.reports.comparison import difference_panels
from ropewalk.reports.evaluation import in_mode, panels
from ropewalk.reports.page.blocks import (
    Axis,
    Cell,
    Chart,
    Guide,
    Mark,
    Page,
    Section,
    Series,
    Table,
)
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
            Section("Both runs", tuple(_side_by_side(found)), line),
            Section(f"{first} minus {second}", (*_differences(found), _table(found)), line),
        ),
        notes=(f"First run: {first}", f"Second run: {second}"),
    )


def _side_by_side(found: ComparedRuns) -> list[Chart]:
    """Each task, with the curves of both runs."""
    charts = []
    first, second = (
        {(p.task, p.mode, p.metric): p for p in panels(results)}
        for results in (found.first_results, found.second_results)
    )
    for key, panel in first.items():
        both = [(found.first, panel), *([(found.second, second[key])] if key in second else ())]
        label = f"{panel.label}{in_mode(panel.mode)}"
        perplexity = panel.metric == PERPLEXITY.name
        charts.append(
            Chart(
                measured.title(panel),
                measured.LENGTH,
                Axis(label, "log10") if perplexity else measured.RATE._replace(label=label),
                tuple(
                    Series(f"{run}: {curve.method}", tuple(map(measured.mark, curve.points)))
                    for run, own in both
                    for curve in own.curves
                ),
                caption=measured.INTERVALS,
            )
        )
    return charts


def _differences(found: ComparedRuns) -> list[Chart]:
    shown = difference_panels(found.comparisons, [found.label(c) for c in found.comparisons])
    return [
        Chart(
            panel.task,
            measured.LENGTH,
            Axis("gain in loss (nats per token)")
            if panel.metric == NLL.name
            else Axis("gain (points)", shown="points"),
            tuple(
                Series(
                    curve.label,
                    tuple(
                        measured.gained(Mark(*point), by_loss=panel.metric == NLL.name)
                        for point in curve.points
                    ),
                )
                for curve in panel.curves
            ),
            horizontals=(Guide(0, ""),),
            caption="Above zero the first run is better. Bars are 95% intervals.",
        )
        for panel in shown
    ]


def _table(found: ComparedRuns) -> Table:
    names = {id(c): found.label(c) for c in found.comparisons}
    values = [_by_place(results) for results in (found.first_results, found.second_results)]

    def value(side: int, key: tuple[object, ...]) -> Cell:
        result = values[side].get(key)
        if result is None:
            return Cell("–")
        return Cell(value_in_words(result), result.value)

    rows = []
    for c in found.comparisons:
        metric = PERPLEXITY.name if c.metric == NLL.name else c.metric
        place = (c.task, c.mode, metric, c.length)
        rows.append(
            (
                Cell(names[id(c)]),
                Cell(f"{c.task} (loss)" if c.metric == NLL.name else c.task),
                Cell(format_length(c.length), c.length),
                value(0, (c.first, *place)),
                value(1, (c.second, *place)),
                measured.gain(
                    c.metric, c.comparison.difference, c.comparison.low, c.comparison.high
                ),
                measured.p_value(c.adjusted_p),
            )
        )
    columns = (
        "method",
        "task",
        "length",
        found.first,
        found.second,
        "gain of the first",
        "p (Holm)",
    )
    return Table("On the same samples", columns, tuple(rows), measured.HOW)


def _by_place(results: Sequence[EvalResult]) -> dict[tuple[object, ...], EvalResult]:
    return {(r.subject, r.task, r.mode, r.metric, r.length): r for r in results}
