"""The charts of docs/theory.md that no verb draws: B(m), the bound of the score, single angles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from ropewalk.chart import Axis, Chart, Guide, Mark, Series
from ropewalk.theory.charts import BLUE, GREY, RED

DISTANCE = Axis("distance m", shown="length")


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
