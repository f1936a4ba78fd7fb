"""The charts of an extension: before and after by length, and how the verdict came about."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ropewalk.chart import Axis, Chart, Guide, Mark, Series
from ropewalk.evaluation.charts import INTERVALS, LENGTH, RATE, original
from ropewalk.evaluation.results import shown_method
from ropewalk.evaluation.verdict import LOOKS, MARGIN, TO_WORK, Look
from ropewalk.records import AS_IT_IS, PERPLEXITY

RETRIEVED = RATE._replace(label="facts retrieved")
LOSS = Axis(PERPLEXITY.label, "log10")


def before_and_after(
    axis: Axis, value: Callable[[str, int], Mark | None], chosen: str, ends: tuple[int, int]
) -> Chart:
    """One value within the window and at the target, unmodified and under the chosen schedule."""
    names = {AS_IT_IS: shown_method(AS_IT_IS), chosen: f"{shown_method(chosen)} (exported)"}
    series = tuple(
        Series(name, tuple(filter(None, (value(method, n) for n in ends))), method == chosen)
        for method, name in names.items()
    )
    return Chart(axis.label, LENGTH, axis, series, original(ends[0]), caption=INTERVALS)


def by_documents(looks: Sequence[Look], chosen: str) -> Chart:
    """The difference that decides, after each look at the documents."""
    marks = tuple(Mark.of(look.documents, look.difference) for look in looks)
    return Chart(
        "Facts retrieved: the difference that decides",
        Axis("documents read"),
        Axis("points", shown="points"),
        (Series(f"{chosen} minus the unmodified model", marks, True),),
        (Guide(TO_WORK, f"at least {TO_WORK}"),),
        (Guide(-MARGIN, "limit"),),
        "Facts are planted in documents and asked for; an answer counts if it is exact. It works "
        f"if the whole interval is above {-100 * MARGIN:.0f} points after {TO_WORK} documents or "
        f"more. Intervals are wider than 95%, so that all {len(LOOKS)} looks hold together.",
    )
