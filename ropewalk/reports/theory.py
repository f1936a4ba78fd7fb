"""Charts of the theory: the bound against length, B(m) against distance, islands of bases.

Their values are computed elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ropewalk.lengths import format_length
from ropewalk.reports.chart import Axis, Chart, Guide, Mark, Series

BLUE, ORANGE, GREEN, RED, GREY = 0, 1, 2, 3, 7
DISTANCE = Axis("distance m", shown="length")


def bounds(
    curves: Sequence[Series], models: Iterable[tuple[str, int, float]], title: str = ""
) -> Chart:
    """Bases against lengths, both logarithmic, with models (name, length, base) as points."""
    at: dict[tuple[int, float], list[str]] = {}
    for name, *place in models:
        at.setdefault((int(place[0]), float(place[1])), []).append(name)
    marks = tuple(Mark(*place, name=", ".join(names)) for place, names in at.items())
    points = (Series("models", marks, True, 5, "points"),) if marks else ()
    x, y = Axis("context length", "log2", "length"), Axis("base", "log10")
    return Chart(title, x, y, (*curves, *points))


def advantage(
    label: str, distances: ArrayLike, shares: ArrayLike, first_violation: int | None
) -> Chart:
    """B(m)/B(0) of one schedule: below zero it is red. Shown by lowest and highest values of short
    runs, so that no dip is lost between two pixels."""
    x, y = np.asarray(distances, np.float64), np.asarray(shares, np.float64)
    starts = np.arange(0, len(x), max(1, len(x) // 1024))
    low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    below = np.where(low < 0, low, np.nan)
    sides = ((BLUE, low, high), (RED, below, np.minimum(high, 0)))
    series = tuple(
        Series("", _marks(x[starts], lows, lows, highs), look=look, drawn="band")
        for look, lows, highs in sides
    )
    first = first_violation
    remark = "never below zero" if first is None else f"first below zero at {first:,}"
    at = () if first is None else (Guide(first, ""),)
    return Chart(f"{label}: {remark}", DISTANCE, Axis("B(m) / B(0)"), series, at, (Guide(0, ""),))


def islands(
    strips: Sequence[tuple[int, Sequence[tuple[float, float]], float]], title: str = ""
) -> Chart:
    """A bar a length, coloured where bases work: islands, then everything from the safe base on."""
    end = 3 * max(safe for _, _, safe in strips)
    series = tuple(
        Series("", tuple(Mark(base, row, row - 0.3, row + 0.3) for base in edge), look=look,
               drawn="band")
        for row, (_, edges, safe) in enumerate(strips)
        for look, edge in (*((BLUE, edge) for edge in edges), (GREEN, (safe, end)))
    )  # fmt: skip
    names = tuple(format_length(length) for length, _, _ in strips)
    return Chart(title, Axis("base", "log10"), Axis("context length", names=names), series)


def score_bounds(curves: Mapping[str, tuple[ArrayLike, ArrayLike]], title: str = "") -> Chart:
    """The fall of the upper bound of the attention score with distance."""
    series = tuple(Series(label, _marks(*values)) for label, values in curves.items())
    return Chart(title, DISTANCE, Axis("bound, as a share of that at 0"), series)


def angles(
    label: str, distances: ArrayLike, cosines: ArrayLike, trained_length: int, new: ArrayLike
) -> Chart:
    """The cosine of one pair: trained distances blue, known angles grey, new ones red."""
    x, y, is_new = np.asarray(distances), np.asarray(cosines), np.asarray(new)
    trained = x < trained_length
    series = tuple(
        Series(name, _marks(x, np.where(mask, y, np.nan)), look=look)
        for mask, look, name in (
            (~trained & ~is_new, GREY, "longer, but a known angle"),
            (~trained & is_new, RED, "longer, and a new angle"),
            (trained, BLUE, "in the trained length"),
        )
    )
    return Chart(label, DISTANCE, Axis("cosine"), series)


def _marks(*columns: ArrayLike) -> tuple[Mark, ...]:
    return tuple(map(Mark, *(np.asarray(each, np.float64).tolist() for each in columns)))
