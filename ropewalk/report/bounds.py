"""Pictures of the theory: the bound against length, B(m) against distance, islands of bases.

What to draw is computed elsewhere and comes as plain values; here it is only drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ropewalk.lengths import format_length
from ropewalk.report.schedules import save


class BoundCurve(NamedTuple):
    """One bound at several lengths."""

    label: str
    lengths: Sequence[int]
    bases: Sequence[float]
    style: str
    """A marker and line in matplotlib's short form."""
    color: str


class ModelPoint(NamedTuple):
    """What a model was trained with."""

    label: str
    length: int
    base: float


def draw_bounds(
    curves: Sequence[BoundCurve],
    models: Sequence[ModelPoint],
    path: str | Path,
    title: str = "",
) -> None:
    """Bases against lengths, both logarithmic, with models as points."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    axes = figure.add_subplot()
    for curve in curves:
        axes.plot(
            curve.lengths,
            curve.bases,
            curve.style,
            color=curve.color,
            label=curve.label,
            linewidth=1.6,
            markersize=5,
        )
    for point in models:
        axes.plot(point.length, point.base, "D", color="black", markersize=5, zorder=3)
        crowded = any(
            1 < other.length / point.length < 1.5 and 0.7 < other.base / point.base < 1.5
            for other in models
        )
        axes.annotate(
            point.label,
            (point.length, point.base),
            xytext=(-7, -6) if crowded else (7, -3),
            textcoords="offset points",
            horizontalalignment="right" if crowded else "left",
            fontsize=8,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8},
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    lengths = [length for curve in curves for length in curve.lengths]
    lengths += [point.length for point in models]
    ticks = [2**i for i in range(int(np.log2(min(lengths))), int(np.log2(max(lengths))) + 2)]
    axes.xaxis.set_major_locator(FixedLocator(ticks[:: max(1, len(ticks) // 12)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_length(int(value))))
    axes.set_xlim(min(lengths) / 1.2, max(lengths) * 2.8)
    axes.set_xlabel("context length")
    axes.set_ylabel("base")
    axes.set_title(title, fontsize=11)
    axes.grid(color="0.92")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    save(figure, path)


class AdvantageCurve(NamedTuple):
    """B(m)/B(0) of one schedule."""

    label: str
    distances: ArrayLike
    shares: ArrayLike
    first_violation: int | None


def draw_advantages(curves: Sequence[AdvantageCurve], path: str | Path, title: str = "") -> None:
    """One strip a schedule, one scale for all: where it dips below zero is red."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(8.5, 1.0 + 1.15 * len(curves)), layout="constrained")
    strips = figure.subplots(len(curves), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, curve in zip(strips, curves, strict=True):
        distances, shares = np.asarray(curve.distances), np.asarray(curve.shares)
        axes.axhline(0, color="0.5", linewidth=0.8)
        axes.plot(distances, shares, color="tab:blue", linewidth=0.4)
        axes.fill_between(distances, shares, 0, where=shares < 0, color="tab:red", linewidth=0.8)
        if curve.first_violation is None:
            remark = "never below zero"
        else:
            remark = f"first below zero at {curve.first_violation:,}"
            axes.axvline(curve.first_violation, color="tab:red", linewidth=0.8, linestyle=":")
        axes.set_title(f"{curve.label}: {remark}", fontsize=9, loc="left", pad=3)
        axes.margins(x=0)
        axes.spines[["top", "right"]].set_visible(False)
    strips[-1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1024:.0f}k"))
    longest = max(int(np.max(np.asarray(curve.distances))) + 1 for curve in curves)
    strips[-1].set_xticks(np.linspace(0, longest, 9))
    strips[-1].set_xlabel("distance m")
    figure.supylabel("B(m) / B(0)", fontsize=9)
    figure.suptitle(title, fontsize=11)
    save(figure, path)


class IslandStrip(NamedTuple):
    """The bases that work for one length: islands, then everything from `safe` on."""

    length: int
    edges: Sequence[tuple[float, float]]
    safe: float


def draw_islands(strips: Sequence[IslandStrip], path: str | Path, title: str = "") -> None:
    """A bar a length, coloured where bases work, from a little below its infimum."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 1.1 + 0.55 * len(strips)), layout="constrained")
    axes = figure.add_subplot()
    highest = max(strip.safe for strip in strips) * 3
    for row, strip in enumerate(strips):
        spans = [(low, high - low) for low, high in strip.edges]
        axes.broken_barh([(1, highest)], (row - 0.3, 0.6), color="0.93")
        axes.broken_barh(spans, (row - 0.3, 0.6), color="tab:blue", linewidth=0)
        axes.broken_barh([(strip.safe, highest)], (row - 0.3, 0.6), color="tab:green", linewidth=0)
    axes.set_yticks(range(len(strips)), [format_length(strip.length) for strip in strips])
    axes.set_xscale("log")
    axes.set_xlim(min(strip.edges[0][0] for strip in strips if strip.edges) / 2, highest)
    axes.set_xlabel("base")
    axes.set_ylabel("context length")
    axes.set_title(title, fontsize=11)
    axes.spines[["top", "right", "left"]].set_visible(False)
    save(figure, path)
