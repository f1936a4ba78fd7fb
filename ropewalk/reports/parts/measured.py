"""Blocks of an evaluation: scores by length, by depth, and loss by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropewalk.blocks import Cell, Section, Table
from ropewalk.chart import Axis, Mark, words
from ropewalk.evaluation import charts
from ropewalk.evaluation.charts import RATE
from ropewalk.evaluation.effective_length import EffectiveLength
from ropewalk.evaluation.results import shown_method
from ropewalk.evaluation.tradeoff import tradeoffs
from ropewalk.lengths import format_length
from ropewalk.pipeline.charts import METRICS, MethodBars
from ropewalk.records import EXACT_MATCH, NLL, EvalRecord, EvalResult


def by_task(
    results: Sequence[EvalResult],
    original_length: int | None,
    *,
    main: str | None = None,
    effective: Sequence[EffectiveLength] = (),
) -> Section:
    """A chart for each task, by length."""
    shown = charts.by_length(results, original_length, effective=effective, main=main)
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
    shown = tradeoffs(records, original_length, main)
    return Section("Long context against short text", tuple(shown))


def by_depth(records: Sequence[EvalRecord]) -> Section:
    """The depths in the context at which answers are found."""
    grids = charts.by_depth(records).values()
    return Section("Where answers are found", tuple(grid for own in grids for grid in own))


def by_position(
    records: Sequence[EvalRecord], original_length: int | None, main: str | None = None
) -> Section:
    """Perplexity by position in the longest context."""
    found = charts.by_position(records, original_length, main)
    return Section("Perplexity by position", tuple(found))
