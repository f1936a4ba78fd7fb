"""The picture of two runs compared: differences with their intervals by context length, by task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.evaluation.results import MethodComparison
from ropewalk.extras import required_by
from ropewalk.lengths import format_length
from ropewalk.records import NLL
from ropewalk.reports.figures import as_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

APART = 0.06
"""How far methods stand from each other, in doublings of the length."""


class Difference(NamedTuple):
    length: int
    value: float
    low: float | None
    high: float | None


class DifferenceCurve(NamedTuple):
    """One pair of methods by length."""

    label: str
    points: tuple[Difference, ...]


class DifferencePanel(NamedTuple):
    """All pairs on one task, by one metric."""

    task: str
    metric: str
    curves: tuple[DifferenceCurve, ...]


def difference_panels(
    comparisons: Sequence[MethodComparison], labels: Sequence[str]
) -> list[DifferencePanel]:
    """One panel per task and metric, one curve per label."""
    found: dict[tuple[str, str], dict[str, list[Difference]]] = {}
    for c, label in zip(comparisons, labels, strict=True):
        curve = found.setdefault((c.task, c.metric), {}).setdefault(label, [])
        own = c.comparison
        curve.append(Difference(c.length, own.difference, own.low, own.high))
    return [
        DifferencePanel(
            *key, tuple(DifferenceCurve(label, tuple(sorted(own))) for label, own in curves.items())
        )
        for key, curves in found.items()
    ]


@required_by("a figure")
def comparison_figure(panels: Sequence[DifferencePanel], title: str) -> Figure:
    """Differences around 0; those of losses have an axis of their own."""
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        axes.axhline(0, color="0.5", linewidth=0.8)
        for i, curve in enumerate(panel.curves):
            moved = 2 ** (APART * (i - (len(panel.curves) - 1) / 2))
            sure = [p for p in curve.points if p.low is not None and p.high is not None]
            axes.plot(
                [p.length * moved for p in curve.points],
                [p.value for p in curve.points],
                "o",
                color=f"C{i}",
                markersize=4,
                label=as_text(curve.label),
            )
            axes.vlines(
                [p.length * moved for p in sure],
                [p.low for p in sure],
                [p.high for p in sure],
                color=f"C{i}",
                linewidth=1.2,
            )
        lengths = sorted({p.length for curve in panel.curves for p in curve.points})
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [format_length(length) for length in lengths], fontsize=8)
        axes.minorticks_off()
        axes.margins(x=0.15)
        axes.set_title(panel.task, fontsize=10)
        loss = panel.metric == NLL.name
        axes.set_ylabel("difference in nats" if loss else "difference of scores", fontsize=9)
        axes.set_xlabel("context length", fontsize=9)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    if len({curve.label for panel in panels for curve in panel.curves}) > 1:
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(
            handles, names, frameon=False, fontsize=8, loc="outside lower center", ncols=4
        )
    figure.suptitle(f"{as_text(title)} (95% intervals)", fontsize=10)
    return figure
