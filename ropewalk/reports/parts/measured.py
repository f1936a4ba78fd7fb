"""Tables of differences: pairs of methods or of runs on the same samples."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.evaluation.results import MethodComparison, labels
from ropewalk.evaluation.statistics import p_in_words
from ropewalk.lengths import format_length
from ropewalk.records import AS_IT_IS, NLL, Subject
from ropewalk.reports.chart import Mark
from ropewalk.reports.comparison import gain_of, named_task, turned
from ropewalk.reports.page.blocks import Cell, Table

HOW = (
    "The gain of the first method over the second, with its 95% interval: points of right answers, "
    "or the nats per token by which its loss is lower. p-values are adjusted by Holm's method over "
    "this table."
)


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
