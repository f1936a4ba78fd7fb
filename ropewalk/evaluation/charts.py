"""Charts of an evaluation: a value against length, a grid of depth and length, loss by position."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ropewalk.chart import Axis, Chart, Guide, Mark, Series, Tile, TileGrid
from ropewalk.evaluation.effective_length import EffectiveLength
from ropewalk.evaluation.results import Spread, estimate, grouped, labels
from ropewalk.evaluation.statistics import rate_interval
from ropewalk.interval import Interval
from ropewalk.lengths import format_length
from ropewalk.records import PERPLEXITY, EvalRecord, EvalResult, is_main, is_main_answer, metric_of

LENGTH = Axis("context length", "log2", "length")
RATE = Axis("", "linear", "percent")
INTERVALS = "95% intervals over samples."
THRESHOLDS = {"ruler": "RULER's 85.6%", "own": "85% of its own"}
"""The scores that make a length effective."""
SAMPLES_PER_CELL = 10
MOST_ROWS = 10
WIDE = 0.4
"""A cell whose interval is wider than this, or that has none, says nothing yet: grey."""
IN_MODE = {
    "teacher_forced": "",
    "generate": ", generated",
    "shared_context": ", generated on shared contexts",
}
"""A mode in the name of a picture; the usual one goes without saying."""


class DepthCell(NamedTuple):
    """The samples of one length whose answer was at about one depth."""

    rate: Interval
    """The mean score: an answer may be right in part."""
    total: int

    @property
    def right(self) -> float:
        return self.rate.value * self.total

    @property
    def is_vague(self) -> bool:
        return self.rate.ends is None or self.rate.ends[1] - self.rate.ends[0] > WIDE


class DepthGrid(NamedTuple):
    """One subject on one task, by depth (rows, from the beginning of the context) and length."""

    method: str
    task: str
    mode: str
    label: str
    lengths: tuple[int, ...]
    rows: tuple[tuple[DepthCell | None, ...], ...]

    @property
    def edges(self) -> list[float]:
        return [i / len(self.rows) for i in range(len(self.rows) + 1)]


def by_length(
    results: Sequence[EvalResult],
    original_length: int | None = None,
    *,
    effective: Sequence[EffectiveLength] = (),
) -> list[Chart]:
    """One chart per task and metric, one series per subject, and the thresholds of means."""
    charts: dict[tuple[str, str, str, str], dict[str, list[Mark]]] = {}
    names = labels(result.subject for result in results)
    for r in filter(is_main, results):
        series = charts.setdefault((r.task, r.mode, r.metric, metric_of(r).label), {})
        series.setdefault(names[r.subject], []).append(Mark.of(r.length, r.estimate))
    return [
        Chart(
            task if task == label else f"{task}: {label}",
            LENGTH,
            Axis(f"{label}{IN_MODE[mode]}", "log10")
            if metric == PERPLEXITY.name
            else RATE._replace(label=f"{label}{IN_MODE[mode]}"),
            tuple(Series(name, tuple(sorted(marks))) for name, marks in series.items()),
            original(original_length),
            tuple(
                dict.fromkeys(
                    Guide(e.threshold, THRESHOLDS[e.criterion])
                    for e in effective
                    if (e.group, e.mode) == (task, mode)
                )
            ),
            INTERVALS,
        )
        for (task, mode, metric, label), series in charts.items()
    ]


def original(length: int | None) -> tuple[Guide, ...]:
    """The length of pretraining, if it is known."""
    return () if length is None else (Guide(length, "original length"),)


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
    for (subject, mode), group in by_subject.items():
        cells = grouped(group, lambda r: (min(int((r.depth or 0.0) * rows), rows - 1), r.length))
        grids.append(
            DepthGrid(
                names[subject],
                task,
                mode,
                metric_of(group[0]).label,
                lengths,
                tuple(
                    tuple(_cell(cells.get((row, length), [])) for length in lengths)
                    for row in range(rows)
                ),
            )
        )
    return grids


def _cell(records: Sequence[EvalRecord]) -> DepthCell | None:
    if not records:
        return None
    scores = [record.score for record in records]
    ends = rate_interval(scores, [record.layout for record in records])
    return DepthCell(Interval.of(sum(scores) / len(scores), ends, "share"), len(scores))


def tiles(grid: DepthGrid) -> TileGrid:
    """A grid as it is drawn."""
    rows = tuple(f"{100 * a:.0f}–{b:.0%}" for a, b in pairwise(grid.edges))
    counts = [cell.total for line in grid.rows for cell in line if cell is not None]
    each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    cells = tuple(
        tuple(
            None
            if cell is None
            else Tile(
                cell.rate.value,
                f"{format_length(length)}, {depth}: {cell.right:g} of {cell.total}",
                cell.is_vague,
            )
            for cell, length in zip(line, grid.lengths, strict=True)
        )
        for line, depth in zip(grid.rows, rows, strict=True)
    )
    return TileGrid(
        f"{grid.task}, {grid.method}{IN_MODE[grid.mode]}",
        LENGTH.label,
        "depth",
        tuple(map(format_length, grid.lengths)),
        rows,
        cells,
        f"Depth is measured from the beginning of the context. Each cell has {each} samples; a "
        f"question mark: its 95% interval is wider than {100 * WIDE:.0f} points.",
    )


def by_depth(records: Sequence[EvalRecord]) -> dict[str, list[TileGrid]]:
    """The grids of each task with answers at a depth, one per subject.

    None of one row, for which there are too few samples: the chart by length shows the same.
    """
    tasks = dict.fromkeys(r.task for r in records if r.depth is not None)
    grids_of = {task: depth_grids(records, task) for task in tasks}
    return {task: [tiles(g) for g in grids if len(g.rows) > 1] for task, grids in grids_of.items()}


def by_position(records: Sequence[EvalRecord], original_length: int | None = None) -> list[Chart]:
    """Perplexity by position in the longest context, from records that were scored so."""
    by_subject = grouped((r for r in records if r.positions is not None), lambda r: r.subject)
    names = labels(by_subject)
    series = []
    for subject, scored in by_subject.items():
        bins = grouped(scored, lambda r: r.positions or (0, 0))
        marks = tuple(Mark.of(high, estimate(group)) for (_, high), group in bins.items())
        series.append(Series(names[subject], marks))
    caption = f"Each value stands at the end of its stretch of positions. {INTERVALS}"
    chart = Chart(
        "In the longest contexts",
        LENGTH._replace(label="position"),
        Axis(PERPLEXITY.label, "log10"),
        tuple(series),
        original(original_length),
        caption=caption,
    )
    return [chart] if series else []


def pictures(
    results: Sequence[EvalResult],
    records: Sequence[EvalRecord],
    *,
    effective: Sequence[EffectiveLength] = (),
    original_length: int | None = None,
) -> dict[str, Sequence[Chart | TileGrid]]:
    """The charts of every picture that these results have something for, by its name."""
    by_name: dict[str, Sequence[Chart | TileGrid]] = {
        "by-length": by_length(results, original_length, effective=effective),
        **{f"{task}-by-depth": grids for task, grids in by_depth(records).items()},
        "perplexity-by-position": by_position(records, original_length),
    }
    return {name: charts for name, charts in by_name.items() if charts}


def of_spreads(spreads: Sequence[Spread], *, original_length: int) -> list[Chart]:
    """The means over several models by length, with the range as the bar."""
    charts: dict[tuple[str, str, str], dict[str, list[Mark]]] = {}
    for s in spreads:
        series = charts.setdefault((s.task, s.mode, s.metric), {})
        series.setdefault(s.method, []).append(Mark(s.length, s.mean, s.lowest, s.highest))
    label = "mean and range"
    return [
        Chart(
            f"{task}{IN_MODE[mode]}",
            LENGTH,
            Axis(label, "log10") if metric == PERPLEXITY.name else RATE._replace(label=label),
            tuple(Series(name, tuple(sorted(marks))) for name, marks in series.items()),
            original(original_length),
        )
        for (task, mode, metric), series in charts.items()
    ]


def by_checkpoint(checkpoints: Sequence[tuple[int, Sequence[EvalResult]]]) -> list[Chart]:
    """Every score at the longest length over the steps of a training, perplexity apart.

    Fig. 4 of Wang et al. 2024: scores of answers move where perplexity no longer does.
    """
    longest = max(r.length for _, results in checkpoints for r in results)
    series: dict[bool, dict[str, list[Mark]]] = {False: {}, True: {}}
    for step, results in checkpoints:
        for r in results:
            if r.length == longest and is_main(r):
                group = series[r.metric == PERPLEXITY.name]
                group.setdefault(f"{r.method}, {r.task}", []).append(Mark.of(step, r.estimate))
    at = f"at {format_length(longest)}, over training"
    return [
        Chart(
            f"{'Perplexity' if is_loss else 'Answers'} {at}",
            Axis("step"),
            Axis("perplexity", "log10") if is_loss else RATE,
            tuple(Series(name, tuple(marks)) for name, marks in group.items()),
            caption=INTERVALS,
        )
        for is_loss, group in series.items()
        if group
    ]
