"""The charts of an extension: before and after by length and depth, and how it was judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ropewalk.chart import Axis, Chart, Guide, Mark, Series, Tile, TileGrid
from ropewalk.evaluation.charts import INTERVALS, LENGTH, RATE, WIDE, DepthCell, original
from ropewalk.evaluation.results import shown_method
from ropewalk.evaluation.statistics import shares_interval
from ropewalk.evaluation.verdict import CONFIDENCE, LOOKS, MARGIN, TO_WORK, Look
from ropewalk.interval import Interval
from ropewalk.lengths import format_length
from ropewalk.records import AS_IT_IS, PERPLEXITY

RETRIEVED = RATE._replace(label="facts retrieved")
LOSS = Axis(PERPLEXITY.label, "log10")
PLACES = ("early", "middle", "late")


class PlantedFact(NamedTuple):
    depth: float
    """0 at the beginning of its document, 1 at the end."""
    found: bool
    document: str


def names(chosen: str) -> dict[str, str]:
    """The unmodified model and the exported schedule, as charts name them."""
    return {AS_IT_IS: shown_method(AS_IT_IS), chosen: f"{shown_method(chosen)} (exported)"}


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


def by_depth(title: str, facts: Mapping[int, Sequence[PlantedFact]]) -> TileGrid:
    """The share of facts that were found, by length, and by their place: a third of them a row."""
    rows = []
    for i in range(len(PLACES)):
        thirds = {n: own[len(own) * i // 3 : len(own) * (i + 1) // 3] for n, own in facts.items()}
        rows.append(tuple(_tile(length, own) for length, own in thirds.items()))
    deepest = max(fact.depth for own in facts.values() for fact in own)
    return TileGrid(
        title,
        LENGTH.label,
        "place in the document",
        tuple(f"{format_length(n)} ({len(own)} facts)" for n, own in facts.items()),
        PLACES,
        tuple(rows),
        f"Each row holds a third of the facts, by depth; the last is {deepest:.0%} into its "
        "document, and the questions are at the end. A question mark: the 95% interval is wider "
        f"than {100 * WIDE:.0f} points.",
    )


def _tile(length: int, facts: Sequence[PlantedFact]) -> Tile | None:
    if not facts:
        return None
    found: dict[str, list[bool]] = {}
    for fact in facts:
        found.setdefault(fact.document, []).append(fact.found)
    ends = shares_interval([sum(own) / len(own) for own in found.values()], len(facts) / len(found))
    rate = sum(fact.found for fact in facts) / len(facts)
    cell = DepthCell(Interval.of(rate, ends, "share"), len(facts))
    told = (
        f"{format_length(length)}, {facts[0].depth:.0%} to {facts[-1].depth:.0%} into a document: "
        f"{cell.right:.0f} of {cell.total}"
    )
    return Tile(cell.rate.value, told, cell.is_vague)


def by_documents(
    looks: Sequence[Look], chosen: str, window: int, length: int, name: str = ""
) -> Chart:
    """The difference that decides, after each look at the documents."""
    marks = tuple(Mark.of(look.documents, look.difference) for look in looks)
    ends = format_length(window), format_length(length)
    return Chart(
        "Facts retrieved: the difference that decides",
        Axis("documents read"),
        Axis("percentage points", shown="points"),
        (
            Series(
                f"{name or chosen} at {ends[1]} minus unmodified at {ends[0]}",
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
