"""The picture of a training: its loss by tokens read, stage after stage. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ropewalk.extras import required_by
from ropewalk.reports.figures import as_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMOOTHED = 20
"""The thick line is the mean of so many steps, at most a fifth of the stage."""


class Curve(NamedTuple):
    """A stage: tokens read since the beginning, and the loss there."""

    name: str
    points: tuple[tuple[int, float], ...]


@required_by("a figure")
def training_figure(curves: Sequence[Curve]) -> Figure:
    """Each step's loss thin, its running mean thick."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, curve in enumerate(curves):
        tokens, losses = np.array(curve.points, dtype=np.float64).reshape(-1, 2).T
        color = f"C{number}"
        axes.plot(tokens, losses, color=color, linewidth=0.7, alpha=0.5)
        width = max(1, min(SMOOTHED, len(losses) // 5))
        mean = np.convolve(losses, np.full(width, 1 / width), mode="valid")
        label = f"{as_text(curve.name)} (mean of {width} steps)"
        axes.plot(tokens[width - 1 :], mean, color=color, linewidth=2, label=label)
    axes.set_xlabel("tokens read")
    axes.set_ylabel("loss in nats per token")
    axes.grid(axis="y", color="0.92", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    return figure
