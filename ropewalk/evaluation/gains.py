"""Charts of differences: positive where the first is better, in points or in nats."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.chart import Axis, Chart, Guide, Mark, Series
from ropewalk.evaluation.charts import IN_MODE, LENGTH
from ropewalk.evaluation.results import MethodComparison
from ropewalk.interval import Interval
from ropewalk.records import NLL


def gain_of(compared: MethodComparison) -> Interval:
    """The gain of the first subject over the second: of losses, the difference with its sign
    turned."""
    difference = compared.comparison.difference
    return -difference if compared.metric == NLL.name else difference


def gains(metric: str) -> Axis:
    """The axis of gains by one metric."""
    if metric == NLL.name:
        return Axis("gain in loss (nats per token)")
    return Axis("gain in right answers (points)", shown="points")


def by_length(comparisons: Sequence[MethodComparison], labels: Sequence[str]) -> list[Chart]:
    """One chart per task, mode and metric, one series per label."""
    charts: dict[tuple[str, str, str], dict[str, list[Mark]]] = {}
    for c, label in zip(comparisons, labels, strict=True):
        series = charts.setdefault((c.task, c.mode, c.metric), {})
        series.setdefault(label, []).append(Mark.of(c.length, gain_of(c)))
    return [
        Chart(
            f"{task}{IN_MODE[mode]}",
            LENGTH,
            gains(metric),
            tuple(Series(label, tuple(sorted(marks))) for label, marks in series.items()),
            horizontals=(Guide(0, ""),),
            caption="Above zero the first run is better. Bars are 95% intervals.",
        )
        for (task, mode, metric), series in charts.items()
    ]
