"""Tables of an evaluation: scores by task and length, effective lengths, methods compared."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from ropewalk.blocks import Block, Cell, Paragraph, Table, cells
from ropewalk.evaluation.effective_length import EffectiveLength
from ropewalk.evaluation.gains import gain_of
from ropewalk.evaluation.results import MethodComparison, SameChoices, Spread, labels
from ropewalk.evaluation.statistics import is_significant, p_in_words
from ropewalk.interval import Interval, written
from ropewalk.lengths import format_length
from ropewalk.records import (
    AS_IT_IS,
    AS_SERVED,
    NEXT_TOKEN_ACCURACY,
    NLL,
    PERPLEXITY,
    EvalResult,
    Subject,
    is_main,
    is_main_answer,
    named_task,
)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=tuple[str, ...])

HOW_COMPARED = (
    "Rates: Newcombe's interval, p by McNemar; means over tasks, several answers of a text: "
    "Newcombe's interval, p by Student's t; partial scores, losses: Student's t for both"
)
"""The interval and the p-value of a difference may come from different tests."""
GAIN = (
    "The gain of the first over the second, with its 95% interval: points of right answers, or the "
    "nats per token by which its loss is lower. p-values are adjusted by Holm's method over this "
    "table."
)
MODES = {
    "teacher_forced": "by teacher forcing (exact match: every answer token and the end of the "
    "answer were the top-1 prediction)",
    "generate": "by generation, as each task scores it",
    "shared_context": "by generation with several questions on each context, as each task scores "
    "it; not comparable with other modes",
}


def scores(results: Sequence[EvalResult]) -> Table:
    """One row per task and length, and a column per subject."""
    names = labels(result.subject for result in results)
    results = list(filter(is_main, results))
    at = {((r.task, r.metric, r.mode), r.length, r.subject): _score(r) for r in results}
    mode = next((r.mode for r in results if is_main_answer(r)), "teacher_forced")
    fewest, most = min(r.samples for r in results), max(r.samples for r in results)
    span = str(most) if fewest == most else f"{fewest} to {most}"
    lacking = any(r.estimate.ends is None for r in results)
    few = ", none where there are too few for an interval" if lacking else ""
    return Table(
        "",
        ("task", "length", *names.values()),
        _by_task(at, names),
        f"95% intervals: Wilson for rates, Student's t for losses{few}; {span} samples per cell; "
        f"retrieval {MODES[mode]}",
        groups=True,
    )


def spreads(scores: Sequence[Spread], count: int) -> Table:
    """The mean and range of each score over several models."""
    methods = list(dict.fromkeys(s.method for s in scores))
    at = {((s.task, s.metric), s.length, s.method): _spread(s) for s in scores}
    caption = (
        f"mean and range of {count} checkpoints; the range is not an interval; the JSON has the "
        "interval of each checkpoint"
    )
    return Table("", ("task", "length", *methods), _by_task(at, methods), caption, groups=True)


def _by_task(
    at: Mapping[tuple[T, int, K], Cell], columns: Collection[K]
) -> tuple[tuple[Cell, ...], ...]:
    """Cells by task (with its metric), length and column, as rows whose first names the task."""
    rows = []
    for task in dict.fromkeys(task for task, *_ in at):
        name = "next token" if task[1] == NEXT_TOKEN_ACCURACY.name else named_task(*task[:2])
        for length in sorted({n for each, n, _ in at if each == task}):
            row = (at.get((task, length, column), Cell("–")) for column in columns)
            rows.append((*cells(name, format_length(length)), *row))
            name = ""
    return tuple(rows)


def _score(result: EvalResult) -> Cell:
    return _with_ends(result.metric, result.value, result.estimate.ends or (), 2)


def _spread(spread: Spread) -> Cell:
    return _with_ends(spread.metric, spread.mean, (spread.lowest, spread.highest), 3)


def _with_ends(metric: str, value: float, ends: Sequence[float], digits: int) -> Cell:
    """A value with the ends of its interval or range; of a perplexity, to so many digits."""
    is_share = metric != PERPLEXITY.name
    shown = f"{value:.0%}" if is_share else _figure(value, 3)
    texts = (f"{100 * end:.0f}" if is_share else _figure(end, digits) for end in ends)
    return Cell(shown, value, quiet="–".join(texts))


def _figure(value: float, digits: int) -> str:
    """So many significant digits, but never fewer than before the point."""
    whole = len(str(int(value)))
    return f"{value:.{max(0, digits - whole)}f}"


def effective(
    lengths: Sequence[EffectiveLength], results: Sequence[EvalResult], window: int
) -> Iterator[Block]:
    """Each subject's effective length, by each mean over tasks and threshold."""
    names, at = labels(result.subject for result in results), format_length(window)
    basis = {"ruler": "RULER", "own": f"85% of unmodified at {at}"}
    rows = tuple(
        (
            *cells(names[e.subject], e.group),
            Cell(f"{e.threshold:.1%} ({basis[e.criterion]})", e.threshold),
            Cell(str(e), e.passed),
        )
        for e in lengths
    )
    caption = (
        "A length passes where the whole 95% interval reaches the threshold, and fails where all "
        "of it is below."
    )
    if rows:
        columns = ("method", "tasks", "mean to reach", "works at")
        yield Table("By the mean over tasks", columns, rows, caption)
    if not any(e.criterion == "own" for e in lengths):
        needs = f"`methods` none at {at}"
        if all(result.method.endswith(AS_SERVED) for result in results):
            needs = (
                f"the unmodified model's at {at}: evaluate the file or server of that at this "
                "length too, and `ropewalk compare` sets two runs side by side"
            )
        yield Paragraph(f"85% of the model's own score: not measured (needs {needs})")


def compared(comparisons: Sequence[MethodComparison], caption: str = GAIN) -> Table:
    """Pairs of methods on the same samples; a terminal shows those that differ."""
    names = labels(subject for c in comparisons for subject in (c.first, c.second))
    differ = tuple(i for i, c in enumerate(comparisons) if is_significant(c.adjusted_p))
    return Table(
        "On the same samples",
        ("task", "length", "first", "second", "gain of the first", "p (Holm)"),
        tuple(
            (
                Cell(named_task(c.task, c.metric)),
                Cell(format_length(c.length), c.length),
                *cells(names[first], names[second]),
                gain(c.metric, difference),
                Cell(p_in_words(c.adjusted_p), c.adjusted_p),
            )
            for c in comparisons
            for first, second, difference in [_over_unmodified(c)]
        ),
        caption,
        brief=differ,
    )


def agreement(pairs: Sequence[SameChoices]) -> Table:
    """The shares of tokens that pairs choose alike which differ in rounding alone."""
    names = labels(subject for each in pairs for subject in (each.first, each.second))
    return Table(
        "The same first choice",
        ("task", "length", "first", "second", "tokens of the answers", "documents"),
        tuple(
            (
                Cell(each.task),
                Cell(format_length(each.length), each.length),
                *cells(names[each.first], names[each.second], str(each.share), str(each.documents)),
            )
            for each in pairs
        ),
        "The share of the answers' tokens in whose place both choose the same token first, right "
        "or wrong.",
    )


def _over_unmodified(c: MethodComparison) -> tuple[Subject, Subject, Interval]:
    """A comparison in the order in which people read it: the gain of a method."""
    if c.first.method != AS_IT_IS:
        return c.first, c.second, gain_of(c)
    return c.second, c.first, -gain_of(c)


def gain(metric: str, difference: Interval) -> Cell:
    """A gain in points, or in nats by which a loss is lower."""
    scale, digits, unit = (1, 3, "nats") if metric == NLL.name else (100, 1, "points")

    def number(value: float) -> str:
        return f"{scale * value:+z.{digits}f}"

    if difference.ends is None:
        return Cell(f"{number(difference.value)} {unit} (too few samples)", difference.value)
    return Cell(f"{written(difference.value, difference.ends, number)} {unit}", difference.value)
