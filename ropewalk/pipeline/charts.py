"""The charts of an extension: before and after by length and depth, and how it was judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ropewalk.chart import Axis, Chart, Guide, Mark, Series, Tile, TileGrid
from ropewalk.evaluation.charts import INTERVALS, LENGTH, RATE, original
from ropewalk.evaluation.results import shown_method
from ropewalk.evaluation.verdict import CONFIDENCE, LOOKS, MARGIN, TO_WORK, Look
from ropewalk.lengths import format_length
from ropewalk.records import AS_IT_IS, PERPLEXITY

RETRIEVED = RATE._replace(label="facts retrieved")
LOSS = Axis(PERPLEXITY.label, "log10")
PLACES = 3
"""The rows of a grid by depth."""
FEW = 30
"""A tile of fewer facts says their number, with dashes around."""


class PlantedFact(NamedTuple):
    depth: float
    """0 at the beginning of its document, 1 at the end."""
    found: bool
    document: str


def names(chosen: str) -> dict[str, str]:
    """The unmodified model and the exported schedule, as charts name them."""
    return {AS_IT_IS: shown_method(AS_IT_IS), chosen: extended(chosen)}


def extended(chosen: str) -> str:
    """The extended model, as all of a page names it."""
    return f"extended ({shown_method(chosen)})"


def before_and_after(
    axis: Axis, value: Callable[[str, int], Mark | None], chosen: str, lengths: Sequence[int]
) -> Chart:
    """One value by length, unmodified and under the chosen schedule."""
    series = tuple(
        Series(
            name,
            tuple(filter(None, (value(method, n) for n in lengths))),
            method == chosen,
            subject=method,
        )
        for method, name in names(chosen).items()
    )
    title = axis.label.capitalize()
    return Chart(title, LENGTH, axis, series, original(lengths[0]), caption=INTERVALS)


def by_depth(title: str, facts: Mapping[int, Sequence[PlantedFact]], deepest: float) -> TileGrid:
    """The share of facts that were found, by length, and by their depth in the document."""
    edges = [deepest * (i / PLACES) for i in range(PLACES + 1)]
    rows = [
        tuple(
            _tile(n, [f for f in own if low < f.depth <= high or f.depth == low == 0])
            for n, own in facts.items()
        )
        for low, high in pairwise(edges)
    ]
    return TileGrid(
        title,
        LENGTH.label,
        "depth",
        tuple(f"{format_length(n)} ({len(own)} facts)" for n, own in facts.items()),
        tuple(f"{100 * low:.0f}–{high:.0%}" for low, high in pairwise(edges)),
        tuple(rows),
        "Depth: how far into its document a fact is hidden; 0% is the beginning, and the questions "
        f"are at the end. Dashes around a count: fewer than {FEW} facts in a cell, too few for a "
        "percentage.",
    )


def _tile(length: int, facts: Sequence[PlantedFact]) -> Tile | None:
    if not facts:
        return None
    count = f"{sum(fact.found for fact in facts)} of {len(facts)}"
    rate = sum(fact.found for fact in facts) / len(facts)
    at = f"{facts[0].depth:.0%} to {facts[-1].depth:.0%} into a document"
    few = len(facts) < FEW
    return Tile(rate, f"{format_length(length)}, {at}: {count}", few, count if few else "")


def by_documents(looks: Sequence[Look], chosen: str, window: int, length: int) -> Chart:
    """The difference that decides, after each look at the documents."""
    marks = tuple(Mark.of(look.documents, look.difference) for look in looks)
    ends = format_length(window), format_length(length)
    return Chart(
        "Facts retrieved: the difference that decides",
        Axis("documents read"),
        Axis(f"percentage points, with {CONFIDENCE:.0%} intervals", shown="points"),
        (
            Series(
                f"{extended(chosen)} at {ends[1]} minus unmodified at {ends[0]}",
                marks,
                True,
                subject=chosen,
            ),
        ),
        (Guide(TO_WORK, f"at least {TO_WORK}"),),
        (Guide(-MARGIN, "limit"),),
        "Facts are planted in documents and asked for; an answer counts if it is exact. The "
        f"model works if the whole interval is above {-100 * MARGIN:.0f} points after {TO_WORK} "
        f"documents or more. This is checked up to {len(LOOKS)} times, so each interval is a wide "
        f"one: {CONFIDENCE:.0%}.",
    )
