"""Pictures of a search: the factors that it found, and what it cost to find them. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ropewalk.extras import required_by
from ropewalk.reports.schedules import FactorCurve
from ropewalk.schedule import RotarySchedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class SearchCurve(NamedTuple):
    """The best score so far against the tokens it took, and the hand-designed methods beside it."""

    tokens: Sequence[int]
    scores: Sequence[float]
    hand_designed: Mapping[str, float]


class Offer(NamedTuple):
    """A schedule's score at the target, and its cost on short text."""

    label: str
    score: float
    cost: float
    low: float | None
    high: float | None


def factors_by_label(schedules: Mapping[str, RotarySchedule]) -> list[FactorCurve]:
    """One curve a schedule, with its attention scaling in the label where it has one."""
    curves = []
    for name, schedule in schedules.items():
        slow = schedule.geometry.plain_frequencies * schedule.geometry.original_length < 2 * np.pi
        scaling = schedule.attention_scaling
        label = name if scaling == 1 else f"{name}, m = {scaling:.3g}"
        first = int(np.argmax(slow)) if slow.any() else None
        curves.append(FactorCurve(label, schedule.rescale_factors, first))
    return curves


@required_by("a figure")
def progress_figure(curve: SearchCurve) -> Figure:
    """Score against tokens, around the best hand-designed method: what is far above it is named."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    hand_designed = [score for score in curve.hand_designed.values() if np.isfinite(score)]
    closest = min([*hand_designed, *curve.scores[:1]], default=1.0)
    lowest = min([closest, *curve.scores])
    margin = max(closest - lowest, 0.005 * abs(closest))
    axes.set_ylim(lowest - 0.3 * margin, closest + 2 * margin)
    if curve.tokens:
        axes.step(curve.tokens, curve.scores, where="post", label="search, best so far", lw=2)
    shown = {name: at for name, at in curve.hand_designed.items() if at <= closest + 2 * margin}
    for i, (name, score) in enumerate(sorted(shown.items(), key=lambda item: item[1]), start=1):
        axes.axhline(score, color=f"C{i}", linestyle="--", linewidth=1.2, label=name)
    axes.set_xlabel("tokens scored")
    axes.set_ylabel("score on the documents of the search (lower is better)")
    left_out = sorted(set(curve.hand_designed) - set(shown))
    if left_out:
        axes.set_title(f"above the picture: {', '.join(left_out)}", fontsize=9, color="0.4")
    axes.legend(frameon=False, fontsize=8)
    return figure


@required_by("a figure")
def trade_off_figure(offers: Sequence[Offer], limit: float, title: str) -> Figure:
    """Cost on short text against the score at the target: the best lie low and to the left."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for i, offer in enumerate(offers):
        low, high = (offer.cost if end is None else end for end in (offer.low, offer.high))
        axes.plot([offer.score] * 2, [low, high], color=f"C{i}", linewidth=1.2)
        axes.plot(offer.score, offer.cost, "o", color=f"C{i}", label=offer.label)
    axes.axhline(limit, color="0.4", linestyle="--", linewidth=1)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("score at the target (lower is better)")
    axes.set_ylabel("nats a token of text, at the original length")
    axes.legend(frameon=False, fontsize=8)
    return figure
