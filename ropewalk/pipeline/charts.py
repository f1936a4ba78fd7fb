"""The charts of an extension: before and after by length and depth, and how it was judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ropewalk.chart import Axis, Chart, Guide, Mark, Series, Tile, TileGrid
from ropewalk.evaluation.charts import LENGTH, RATE, original
from ropewalk.evaluation.results import shown_method
from ropewalk.evaluation.verdict import CONFIDENCE, LOOKS, MARGIN, TO_WORK, Look
from ropewalk.lengths import format_length
from ropewalk.records import AS_IT_IS, PERPLEXITY

RETRIEVED = RATE._replace(label="facts retrieved")
LOSS = Axis(PERPLEXITY.label, "log10")
PLACES = 3
"""The rows of a grid by depth."""
FEW = 30
"""A tile of fewer facts has dashes around."""
_MARKS = {"works": "passes", "does not work": "fails"}
"""Verdicts after some of the documents, as a chart marks them."""


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
    series = []
    for method, name in names(chosen).items():
        marks = tuple(filter(None, (value(method, n) for n in lengths)))
        series.append(Series(name, marks, method == chosen, subject=method))
    title, caption = axis.label.capitalize(), "95% intervals over documents."
    return Chart(title, LENGTH, axis, tuple(series), original(lengths[0]), caption=caption)


def by_depth(title: str, facts: Mapping[int, Sequence[PlantedFact]], deepest: float) -> TileGrid:
    """The share of facts that were found, by length, and by their depth in the document."""
    edges = [deepest * (i / PLACES) for i in range(PLACES + 1)]
    rows = [
        tuple(
            _tile(n, [f for f in planted if low < f.depth <= high or f.depth == low == 0])
            for n, planted in facts.items()
        )
        for low, high in pairwise(edges)
    ]
    return TileGrid(
        title,
        LENGTH.label,
        "depth",
        tuple(map(format_length, facts)),
        tuple(f"{100 * low:.0f}–{high:.0%}" for low, high in pairwise(edges)),
        tuple(rows),
        "Each cell: facts found, of those asked for. Dashed: fewer than "
        f"{FEW} facts, too few to compare cells. Depth: how far into its document a fact is "
        f"hidden. None is deeper than {deepest:.0%}: a document ends in text that measures "
        "perplexity, and the questions.",
    )


def _tile(length: int, facts: Sequence[PlantedFact]) -> Tile | None:
    if not facts:
        return None
    count = f"{sum(fact.found for fact in facts)} of {len(facts)}"
    rate = sum(fact.found for fact in facts) / len(facts)
    at = f"{facts[0].depth:.0%} to {facts[-1].depth:.0%} into a document"
    shown = f"{count} ({rate:.0%})"
    return Tile(rate, f"{format_length(length)}, {at}: {count}", len(facts) < FEW, shown)


def by_documents(looks: Sequence[Look], chosen: str, window: int, length: int) -> Chart:
    """The difference that decides, after each look at the documents."""
    marks = tuple(
        Mark.of(look.documents, look.difference)._replace(name=_MARKS.get(look.verdict, "not yet"))
        for look in looks
    )
    ends = format_length(window), format_length(length)
    label = f"{extended(chosen)} at {ends[1]} minus unmodified at {ends[0]}"
    return Chart(
        "Facts retrieved: the difference that decides",
        Axis("documents read", "log2", "length"),
        Axis(f"percentage points, with {CONFIDENCE:.0%} intervals", shown="points"),
        (Series(label, marks, True, subject=chosen),),
        (Guide(TO_WORK, f"at least {TO_WORK}"),),
        (Guide(-MARGIN, f"limit: {-100 * MARGIN:.0f} points"),),
        f"It passes if the whole interval is above the limit after {TO_WORK} documents or more. "
        f"This is checked up to {len(LOOKS)} times, so each interval is a wide one: "
        f"{CONFIDENCE:.0%}.",
    )
