"""Blocks of an evaluation: scores by length, by depth, and loss by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropewalk.evaluation.effective_length import EffectiveLength
from ropewalk.evaluation.results import MethodComparison, labels, shown_method
from ropewalk.evaluation.statistics import p_in_words
from ropewalk.lengths import format_length
from ropewalk.records import AS_IT_IS, EXACT_MATCH, NLL, EvalRecord, EvalResult, Subject
from ropewalk.reports import evaluation
from ropewalk.reports.chart import Axis, Mark, words
from ropewalk.reports.comparison import gain_of, named_task, turned
from ropewalk.reports.evaluation import RATE
from ropewalk.reports.extend import METRICS, MethodBars
from ropewalk.reports.page.blocks import Cell, Section, Table
from ropewalk.reports.tradeoff import tradeoffs

HOW = (
    "The gain of the first method over the second, with its 95% interval: points of right answers, "
    "or the nats per token by which its loss is lower. p-values are adjusted by Holm's method over "
    "this table."
)


def by_task(
    results: Sequence[EvalResult],
    original_length: int | None,
    *,
    main: str | None = None,
    effective: Sequence[EffectiveLength] = (),
) -> Section:
    """A chart for each task, by length."""
    shown = evaluation.by_length(results, original_length, effective=effective, main=main)
    return Section("Each task by context length", tuple(shown))


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
    """The gain of each method at each length, if short and long text were measured."""
    charts = tradeoffs(records, original_length, main)
    return Section("Long context against short text", tuple(charts))


def by_depth(records: Sequence[EvalRecord]) -> Section:
    """The depths in the context at which answers are found."""
    grids = evaluation.by_depth(records).values()
    return Section("Where answers are found", tuple(grid for own in grids for grid in own))


def by_position(
    records: Sequence[EvalRecord], original_length: int | None, main: str | None = None
) -> Section:
    """Perplexity by position in the longest context."""
    charts = evaluation.by_position(records, original_length, main)
    return Section("Perplexity by position", tuple(charts))


def compared(comparisons: Sequence[MethodComparison], caption: str) -> Table:
    """Pairs of methods on the same samples."""
    names = labels(subject for c in comparisons for subject in (c.first, c.second))
    return Table(
        "Methods compared on the same samples",
        ("task", "length", "first", "second", "gain of the first", "p (Holm)"),
        tuple(
            (
                Cell(named_task(c.task, c.metric)),
                Cell(format_length(c.length), c.length),
                Cell(names[first]),
                Cell(names[second]),
                gain(c.metric, own),
                p_value(c.adjusted_p),
            )
            for c in comparisons
            for first, second, own in [_over_unmodified(c)]
        ),
        caption,
    )


def _over_unmodified(c: MethodComparison) -> tuple[Subject, Subject, Mark]:
    """A comparison in the order in which people read it: the gain of a method."""
    if c.first.method != AS_IT_IS:
        return c.first, c.second, gain_of(c)
    return c.second, c.first, turned(gain_of(c))


def gain(metric: str, own: Mark) -> Cell:
    """A gain in points, or in nats by which a loss is lower."""
    scale, digits, unit = (1, 3, "nats") if metric == NLL.name else (100, 1, "points")
    told = f"{scale * own.y:+z.{digits}f}"
    if own.low is None or own.high is None:
        return Cell(f"{told} {unit} (too few samples)", own.y)
    between = f"{scale * own.low:+z.{digits}f} to {scale * own.high:+z.{digits}f}"
    return Cell(f"{told} ({between}) {unit}", own.y)


def p_value(p: float | None) -> Cell:
    return Cell(p_in_words(p), p)
