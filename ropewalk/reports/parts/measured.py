"""Blocks of an evaluation: scores by length, by depth, and loss by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ropewalk.evaluation.effective_length import EffectiveLength
from ropewalk.evaluation.results import MethodComparison, labels, shown_method
from ropewalk.evaluation.statistics import p_in_words
from ropewalk.lengths import format_length
from ropewalk.records import AS_IT_IS, EXACT_MATCH, NLL, PERPLEXITY, EvalRecord, EvalResult, Subject
from ropewalk.reports.evaluation import (
    Panel,
    Point,
    depth_grids,
    in_mode,
    panels,
    position_curves,
)
from ropewalk.reports.extend import METRICS, MethodBars
from ropewalk.reports.page.blocks import (
    Axis,
    Block,
    Cell,
    Chart,
    Guide,
    Mark,
    Section,
    Series,
    Table,
    Tile,
    TileGrid,
)
from ropewalk.reports.page.svg import words
from ropewalk.reports.tradeoff import is_loss, tradeoffs

LENGTH = Axis("context length", "log2", "length")
RATE = Axis("", "linear", "percent")
INTERVALS = "Bars are 95% intervals over samples."
HOW = (
    "The gain of the first method over the second, with its 95% interval: points of right answers, "
    "or the nats per token by which its loss is lower. p-values are adjusted by Holm's method over "
    "this table."
)


_SIDES = (
    "The gain over the unmodified model, on the same samples: up to the original length, values "
    "below zero are the cost on short text; beyond it, values above zero what long context gains."
)


def mark(point: Point) -> Mark:
    return Mark(point.length, point.value, point.low, point.high)


def title(panel: Panel) -> str:
    """The task and what is shown of it; once where both are perplexity."""
    return panel.task if panel.task == panel.label else f"{panel.task}: {panel.label}"


def original(length: int | None) -> tuple[Guide, ...]:
    return () if length is None else (Guide(length, "original length"),)


def by_task(
    results: Sequence[EvalResult],
    original_length: int | None,
    *,
    main: str | None = None,
    effective: Sequence[EffectiveLength] = (),
) -> Section:
    """A chart for each task, by length."""
    shown = panels(results, effective)
    return Section(
        "Each task by context length", tuple(_chart(p, original_length, main) for p in shown)
    )


def _chart(panel: Panel, original_length: int | None, main: str | None) -> Chart:
    perplexity = panel.metric == PERPLEXITY.name
    label = f"{panel.label}{in_mode(panel.mode)}"
    return Chart(
        title(panel),
        LENGTH,
        Axis(label, "log10") if perplexity else RATE._replace(label=label),
        tuple(
            Series(curve.method, tuple(map(mark, curve.points)), curve.method == main)
            for curve in panel.curves
        ),
        original(original_length),
        tuple(Guide(at, name) for name, at in panel.thresholds),
        caption=INTERVALS,
    )


def pooled(
    lines: Mapping[str, Sequence[MethodBars]], original_length: int, main: str
) -> tuple[Block, ...]:
    """All tasks of a metric together."""
    return tuple(
        Chart(
            label,
            LENGTH,
            Axis(label, "log10") if metric == NLL.name else RATE._replace(label=label),
            tuple(
                Series(
                    shown_method(line.method),
                    tuple(Mark(*bar) for bar in line.bars),
                    line.method == main,
                )
                for line in lines[metric]
            ),
            original(original_length),
            caption=INTERVALS,
        )
        for metric, label in METRICS.items()
        if lines.get(metric)
    )


def at_target(lines: Mapping[str, Sequence[MethodBars]], length: int, main: str) -> Table:
    """Every method at one length: all tasks together, and perplexity."""
    found: dict[str, dict[str, Mark]] = {}
    for metric in METRICS:
        for line in lines.get(metric, ()):
            own = [Mark(*bar) for bar in line.bars if bar.length == length]
            found.setdefault(line.method, {}).update({metric: own[0]} if own else {})
    axes = {EXACT_MATCH.name: RATE, NLL.name: Axis("")}

    def cell(own: Mapping[str, Mark], metric: str) -> Cell:
        return Cell(words(own[metric], axes[metric]), own[metric].y) if metric in own else Cell("–")

    return Table(
        f"Methods at {format_length(length)}",
        ("method", *METRICS.values()),
        tuple(
            (
                Cell(f"{shown_method(name)}{' (exported)' if name == main else ''}"),
                *(cell(own, metric) for metric in METRICS),
            )
            for name, own in found.items()
        ),
        "With 95% intervals.",
    )


def against_short(
    records: Sequence[EvalRecord], original_length: int, main: str | None = None
) -> Section:
    """What each method changes at each length, where short and long text were measured."""
    shown = tradeoffs(records, original_length, AS_IT_IS)
    order = list(labels(r.subject for r in records).values())
    return Section(
        "Long context against short text",
        tuple(_change(panel, original_length, main, order) for panel in shown),
    )


def _change(panel: Panel, original_length: int, main: str | None, order: Sequence[str]) -> Chart:
    """Each method in the colour that it has in other charts, where the model as it is has one."""
    by_loss = is_loss(panel)
    what = "gain in loss (nats per token)" if by_loss else "gain in right answers (points)"
    return Chart(
        f"{panel.task}{in_mode(panel.mode)}: {what}",
        LENGTH,
        Axis(what) if by_loss else Axis(what, shown="points"),
        tuple(
            Series(
                c.method,
                tuple(gained(mark(point), by_loss=by_loss) for point in c.points),
                c.method == main,
                order.index(c.method),
            )
            for c in panel.curves
        ),
        original(original_length),
        (Guide(0, "unmodified"),),
        caption=f"{_SIDES} Above zero is better. Bars are 95% intervals.",
    )


def by_depth(records: Sequence[EvalRecord]) -> Section:
    """Where in the context answers are found."""
    tasks = dict.fromkeys(r.task for r in records if r.depth is not None)
    grids = [grid for task in tasks for grid in depth_grids(records, task)]
    blocks = []
    for grid in grids:
        edges = grid.edges
        rows = tuple(f"{100 * a:.0f}–{b:.0%}" for a, b in pairwise(edges))
        counts = [cell.total for line in grid.rows for cell in line if cell is not None]
        each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        blocks.append(
            TileGrid(
                f"{grid.task}, {grid.method}{in_mode(grid.mode)}",
                "context length",
                "depth",
                tuple(map(format_length, grid.lengths)),
                rows,
                tuple(
                    tuple(
                        None
                        if cell is None
                        else Tile(
                            cell.rate,
                            f"{format_length(length)}, {depth}: {cell.right:g} of {cell.total}",
                            cell.is_vague,
                        )
                        for cell, length in zip(line, grid.lengths, strict=True)
                    )
                    for line, depth in zip(grid.rows, rows, strict=True)
                ),
                f"Depth is measured from the beginning of the context. Each cell has {each} "
                "samples; dashed cells with a question mark have too few to tell.",
            )
        )
    return Section("Where answers are found", tuple(blocks))


def by_position(
    records: Sequence[EvalRecord], original_length: int | None, main: str | None = None
) -> Section:
    """Perplexity by position in the longest context."""
    curves = position_curves(records)
    if not curves:
        return Section("Perplexity by position", ())
    chart = Chart(
        "In the longest contexts",
        Axis("position", "log2", "length"),
        Axis("perplexity", "log10"),
        tuple(Series(c.method, tuple(map(mark, c.points)), c.method == main) for c in curves),
        original(original_length),
        caption="Each value stands at the end of its stretch of positions. " + INTERVALS,
    )
    return Section("Perplexity by position", (chart,))


def compared(comparisons: Sequence[MethodComparison], caption: str) -> Table:
    """Pairs of methods on the same samples."""
    names = labels(subject for c in comparisons for subject in (c.first, c.second))
    return Table(
        "Methods compared on the same samples",
        ("task", "length", "first", "second", "gain of the first", "p (Holm)"),
        tuple(
            (
                Cell(f"{c.task} (loss)" if c.metric == NLL.name else c.task),
                Cell(format_length(c.length), c.length),
                Cell(names[first]),
                Cell(names[second]),
                gain(c.metric, own.y, own.low, own.high),
                p_value(c.adjusted_p),
            )
            for c in comparisons
            for first, second, own in [_over_unmodified(c)]
        ),
        caption,
    )


def _over_unmodified(c: MethodComparison) -> tuple[Subject, Subject, Mark]:
    """A comparison in the order in which people read it: what a method gains."""
    own = Mark(c.length, c.comparison.difference, c.comparison.low, c.comparison.high)
    if c.first.method != AS_IT_IS:
        return c.first, c.second, own
    return c.second, c.first, gained(own, by_loss=True)


def gain(metric: str, value: float, low: float | None, high: float | None) -> Cell:
    """What a difference of scores gains: points, or nats by which a loss is lower."""
    own = gained(Mark(0, value, low, high), by_loss=metric == NLL.name)
    scale, digits, unit = (1, 3, "nats") if metric == NLL.name else (100, 1, "points")
    told = f"{scale * own.y:+z.{digits}f}"
    if own.low is None or own.high is None:
        return Cell(f"{told} {unit} (too few samples)", own.y)
    ends = f"{scale * own.low:+z.{digits}f} to {scale * own.high:+z.{digits}f}"
    return Cell(f"{told} ({ends}) {unit}", own.y)


def gained(mark: Mark, *, by_loss: bool) -> Mark:
    """A difference so that more is better: of losses, with its sign turned."""
    if not by_loss:
        return mark
    low, high = (None if end is None else -end for end in (mark.low, mark.high))
    return Mark(mark.x, -mark.y, high, low)


def p_value(p: float | None) -> Cell:
    return Cell(p_in_words(p), p)
