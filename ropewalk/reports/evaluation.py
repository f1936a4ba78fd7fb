"""Pictures of an evaluation: a value against length, a grid of depth and length, loss by position.

Views hold what is to be seen, as plain values; drawing them comes after and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.evaluation.effective_length import EffectiveLength
from ropewalk.evaluation.results import Spread, estimate, grouped, labels
from ropewalk.evaluation.statistics import rate_interval
from ropewalk.extras import required_by
from ropewalk.lengths import format_length
from ropewalk.records import PERPLEXITY, EvalRecord, EvalResult, is_main, is_main_answer, metric_of
from ropewalk.reports.figures import as_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES_PER_CELL = 10
MOST_ROWS = 10
WIDE = 0.4
"""A cell whose interval is wider than this, or that has none, says nothing yet: grey."""
_IN_MODE = {
    "teacher_forced": "",
    "generate": ", generated",
    "shared_context": ", generated on shared contexts",
}


class Point(NamedTuple):
    length: int
    value: float
    low: float | None
    high: float | None


class Curve(NamedTuple):
    """One method's values by length."""

    method: str
    points: tuple[Point, ...]


class Panel(NamedTuple):
    """The curves of all methods on one task, by one metric, in one mode."""

    task: str
    mode: str
    metric: str
    label: str
    curves: tuple[Curve, ...]
    thresholds: tuple[tuple[str, float], ...] = ()
    """Scores that make a length effective, each with what it is."""


class Cell(NamedTuple):
    """The samples of one length whose answer stood at about one depth."""

    right: float
    """The sum of the scores: an answer may be right in part."""
    total: int
    low: float | None
    high: float | None

    @property
    def rate(self) -> float:
        return self.right / self.total

    @property
    def is_vague(self) -> bool:
        return self.low is None or self.high is None or self.high - self.low > WIDE


class DepthGrid(NamedTuple):
    """One subject on one task, by depth (rows, from the beginning of the context) and length."""

    method: str
    task: str
    mode: str
    label: str
    lengths: tuple[int, ...]
    rows: tuple[tuple[Cell | None, ...], ...]

    @property
    def edges(self) -> list[float]:
        return [i / len(self.rows) for i in range(len(self.rows) + 1)]


class PositionCurve(NamedTuple):
    """One method's perplexity by position in the longest context."""

    method: str
    bins: tuple[tuple[int, int], ...]
    points: tuple[Point, ...]
    """Each with the end of its bin as its length."""


def in_mode(mode: str) -> str:
    """A mode in the name of a picture; the usual one goes without saying."""
    return _IN_MODE[mode]


THRESHOLDS = {"ruler": "RULER's 85.6%", "own": "85% of its own"}


def panels(results: Sequence[EvalResult], effective: Sequence[EffectiveLength] = ()) -> list[Panel]:
    """One panel per task and metric, one curve per subject, and the thresholds of means."""
    found: dict[tuple[str, str, str, str], dict[str, list[Point]]] = {}
    names = labels(result.subject for result in results)
    for r in filter(is_main, results):
        curves = found.setdefault((r.task, r.mode, r.metric, metric_of(r).label), {})
        curves.setdefault(names[r.subject], []).append(Point(r.length, r.value, r.low, r.high))
    return [
        Panel(
            *key,
            tuple(Curve(method, tuple(sorted(points))) for method, points in own.items()),
            tuple(
                dict.fromkeys(
                    (THRESHOLDS[e.criterion], e.threshold)
                    for e in effective
                    if (e.group, e.mode) == key[:2]
                )
            ),
        )
        for key, own in found.items()
    ]


def depth_grids(records: Sequence[EvalRecord], task: str) -> list[DepthGrid]:
    """One grid per subject, with as many rows as leave enough samples in a cell."""
    placed = [r for r in records if r.task == task and r.depth is not None and is_main_answer(r)]
    lengths = tuple(sorted({r.length for r in placed}))
    names = labels(r.subject for r in placed)
    by_subject = grouped(placed, lambda r: (r.subject, r.mode))
    counts = [len(g) for g in grouped(placed, lambda r: (r.subject, r.mode, r.length)).values()]
    if not counts:
        return []
    rows = max(1, min(MOST_ROWS, min(counts) // SAMPLES_PER_CELL))
    grids = []
    for (subject, mode), own in by_subject.items():
        cells = grouped(own, lambda r: (min(int((r.depth or 0.0) * rows), rows - 1), r.length))
        grids.append(
            DepthGrid(
                names[subject],
                task,
                mode,
                metric_of(own[0]).label,
                lengths,
                tuple(
                    tuple(_cell(cells.get((row, length), [])) for length in lengths)
                    for row in range(rows)
                ),
            )
        )
    return grids


def _cell(records: Sequence[EvalRecord]) -> Cell | None:
    if not records:
        return None
    scores = [record.score for record in records]
    interval = rate_interval(scores, [record.layout for record in records])
    return Cell(sum(scores), len(scores), *(interval or (None, None)))


def position_curves(records: Sequence[EvalRecord]) -> list[PositionCurve]:
    """Perplexity by position, from the records that were scored by position."""
    by_subject = grouped((r for r in records if r.positions is not None), lambda r: r.subject)
    names = labels(by_subject)
    curves = []
    for subject, own in by_subject.items():
        bins = grouped(own, lambda r: r.positions or (0, 0))
        points = [Point(high, *estimate(group)) for (_, high), group in bins.items()]
        curves.append(PositionCurve(names[subject], tuple(bins), tuple(points)))
    return curves


def figures(
    results: Sequence[EvalResult],
    records: Sequence[EvalRecord],
    *,
    effective: Sequence[EffectiveLength] = (),
    original_length: int | None = None,
) -> dict[str, Figure]:
    """Every picture that these results have something for, by its name.

    A dotted line marks the length of pretraining.
    """
    pictures: dict[str, Figure] = {}
    shown = panels(results, effective)
    if shown:
        pictures["by-length"] = _panels_figure(shown, original_length)
    for task in dict.fromkeys(r.task for r in records if r.depth is not None):
        pictures[f"{task}-by-depth"] = _grids_figure(depth_grids(records, task))
    positions = position_curves(records)
    if positions:
        pictures["perplexity-by-position"] = _positions_figure(positions, original_length)
    return pictures


def spread_figure(spreads: Sequence[Spread], *, original_length: int) -> Figure:
    """The means over several models by length, with the range as the band."""
    found: dict[tuple[str, str, str], dict[str, list[Point]]] = {}
    for s in spreads:
        point = Point(s.length, s.mean, s.lowest, s.highest)
        found.setdefault((s.task, s.mode, s.metric), {}).setdefault(s.method, []).append(point)
    shown = [
        Panel(*key, "mean and range", tuple(Curve(m, tuple(sorted(p))) for m, p in own.items()))
        for key, own in found.items()
    ]
    return _panels_figure(shown, original_length)


@required_by("a figure")
def _panels_figure(shown: Sequence[Panel], original_length: int | None) -> Figure:
    from matplotlib.figure import Figure

    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(grid.flat, shown, strict=False):
        for i, curve in enumerate(panel.curves):
            _draw_curve(axes, curve.method, curve.points, f"C{i}")
        _lengths_axis(
            axes, sorted({p.length for c in panel.curves for p in c.points}), original_length
        )
        for name, threshold in panel.thresholds:
            axes.axhline(threshold, color="0.4", linewidth=0.8, linestyle="--", zorder=0)
            axes.annotate(
                name, (1, threshold), (-2, 2), ("axes fraction", "data"), "offset points",
                fontsize=7, color="0.4", ha="right",
            )  # fmt: skip
        axes.set_title(panel.task, fontsize=10)
        axes.set_ylabel(f"{panel.label}{in_mode(panel.mode)}", fontsize=9)
        if panel.metric != PERPLEXITY.name:
            axes.set_ylim(-0.03, 1.03)
        else:
            _perplexity_axis(axes, panel.curves)
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_axis_off()
    methods = {c.method for panel in shown for c in panel.curves}
    if len(methods) > 1:
        grid.flat[0].legend(frameon=False, fontsize=8)
    return figure


def _draw_curve(axes: object, label: str, points: Sequence[Point], color: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    lengths = [point.length for point in points]
    axes.plot(
        lengths, [p.value for p in points], "o-", label=as_text(label), color=color, markersize=3
    )
    bands = [(p.length, p.low, p.high) for p in points if p.low is not None and p.high is not None]
    axes.fill_between(
        [length for length, _, _ in bands],
        [low for _, low, _ in bands],
        [high for _, _, high in bands],
        color=color,
        alpha=0.15,
        linewidth=0,
    )


def _lengths_axis(axes: object, lengths: Sequence[int], original_length: int | None) -> None:
    from matplotlib.axes import Axes
    from matplotlib.ticker import NullLocator

    assert isinstance(axes, Axes)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [format_length(length) for length in lengths], fontsize=8)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("context length", fontsize=9)
    axes.grid(axis="y", color="0.92", linewidth=0.6)
    if original_length is not None and lengths[0] <= original_length < lengths[-1]:
        axes.axvline(original_length, color="0.5", linewidth=0.8, linestyle=":", zorder=0)


def _perplexity_axis(axes: object, curves: Sequence[Curve | PositionCurve]) -> None:
    """Logarithmic where the values are far apart."""
    from matplotlib.axes import Axes
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    assert isinstance(axes, Axes)
    values = [point.value for curve in curves for point in curve.points]
    if max(values) > 3 * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())


@required_by("a figure")
def _grids_figure(grids: Sequence[DepthGrid]) -> Figure:
    import matplotlib
    from matplotlib.figure import Figure

    lengths, rows = grids[0].lengths, len(grids[0].rows)
    figure = Figure(
        figsize=(max(3.0, 0.62 * len(lengths) + 1.4) * len(grids), 0.34 * rows + 1.6),
        layout="constrained",
    )
    all_axes = figure.subplots(1, len(grids), squeeze=False, sharey=True)[0]
    colors = matplotlib.colormaps["viridis"]
    for axes, grid in zip(all_axes, grids, strict=True):
        for y, row in enumerate(grid.rows):
            for x, cell in enumerate(row):
                if cell is None:
                    continue
                color = "0.85" if cell.is_vague else colors(cell.rate)
                ink = "black" if cell.is_vague or cell.rate > 0.5 else "white"
                axes.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], color=color, linewidth=0)
                axes.text(
                    x + 0.5,
                    y + 0.5,
                    f"{cell.rate:.0%}",
                    color=ink,
                    size=7,
                    ha="center",
                    va="center",
                )
        axes.set_xlim(0, len(lengths))
        axes.set_ylim(rows, 0)
        axes.set_xticks(
            [i + 0.5 for i in range(len(lengths))], [format_length(n) for n in lengths], fontsize=8
        )
        axes.set_yticks(range(rows + 1), [f"{edge:.0%}" for edge in grid.edges], fontsize=8)
        axes.tick_params(length=0)
        axes.set_title(as_text(grid.method), fontsize=10)
        axes.set_xlabel("context length", fontsize=9)
    all_axes[0].set_ylabel("depth of the answer", fontsize=9)
    task = f"{grids[0].task}{in_mode(grids[0].mode)}"
    figure.suptitle(f"{task}: {grids[0].label} (grey: 95% interval above 40 points)", fontsize=9)
    return figure


@required_by("a figure")
def _positions_figure(curves: Sequence[PositionCurve], original_length: int | None) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    for i, curve in enumerate(curves):
        _draw_curve(axes, curve.method, curve.points, f"C{i}")
    _lengths_axis(axes, sorted({p.length for c in curves for p in c.points}), original_length)
    _perplexity_axis(axes, curves)
    axes.set_xlabel("position in the context, up to", fontsize=9)
    axes.set_ylabel("perplexity", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return figure
