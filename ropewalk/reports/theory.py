"""Pictures of the theory: the bound against length, B(m) against distance, islands of bases.

What to draw is computed elsewhere and comes as plain values; here it is only drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ropewalk.extras import required_by
from ropewalk.lengths import format_length
from ropewalk.schedule import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class BoundCurve(NamedTuple):
    """One bound at several lengths."""

    label: str
    lengths: Sequence[int]
    bases: Sequence[float]
    style: str
    """A marker and line in matplotlib's short form."""
    color: str


class ModelPoint(NamedTuple):
    """The settings of the model's training."""

    label: str
    length: int
    base: float


@required_by("a figure")
def bounds_figure(
    curves: Sequence[BoundCurve],
    models: Sequence[ModelPoint],
    title: str = "",
) -> Figure:
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
    return figure


def _in_k(value: float, _: object) -> str:
    return f"{value / 1024:.0f}k" if value else "0"


class AdvantageCurve(NamedTuple):
    """B(m)/B(0) of one schedule."""

    label: str
    distances: ArrayLike
    shares: ArrayLike
    first_violation: int | None


@required_by("a figure")
def advantages_figure(curves: Sequence[AdvantageCurve], title: str = "") -> Figure:
    """One strip a schedule, from its lowest to its highest values: below zero it is red."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(8.5, 1.0 + 1.15 * len(curves)), layout="constrained")
    strips = figure.subplots(len(curves), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, curve in zip(strips, curves, strict=True):
        distances, lowest, highest = _envelope(curve.distances, curve.shares)
        axes.fill_between(distances, lowest, highest, color="tab:blue", linewidth=0.5)
        below = np.minimum(lowest, 0)
        axes.fill_between(distances, below, 0, where=below < 0, color="tab:red", linewidth=0.5)
        axes.axhline(0, color="0.3", linewidth=0.8)
        if curve.first_violation is None:
            remark = "never below zero"
        else:
            remark = f"first below zero at {curve.first_violation:,}"
            axes.axvline(curve.first_violation, color="tab:red", linewidth=0.8, linestyle=":")
        axes.set_title(f"{curve.label}: {remark}", fontsize=9, loc="left", pad=3)
        axes.margins(x=0)
        axes.spines[["top", "right"]].set_visible(False)
    strips[-1].xaxis.set_major_formatter(FuncFormatter(_in_k))
    longest = max(int(np.max(np.asarray(curve.distances))) + 1 for curve in curves)
    strips[-1].set_xticks(np.linspace(0, longest, 9))
    strips[-1].set_xlabel("distance m")
    figure.supylabel("B(m) / B(0)", fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure


def _envelope(distances: ArrayLike, values: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lowest and highest values of short runs, so that no dip is lost between two pixels."""
    x, y = np.asarray(distances, np.float64), np.asarray(values, np.float64)
    starts = np.arange(0, len(x), max(1, len(x) // 1024))
    return x[starts], np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)


class IslandStrip(NamedTuple):
    """The bases that work for one length: islands, then everything from `safe` on."""

    length: int
    edges: Sequence[tuple[float, float]]
    safe: float


@required_by("a figure")
def islands_figure(strips: Sequence[IslandStrip], title: str = "") -> Figure:
    """A bar a length, coloured where bases work; the narrowest islands are drawn a hair wide."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 1.1 + 0.55 * len(strips)), layout="constrained")
    axes = figure.add_subplot()
    highest = max(strip.safe for strip in strips) * 3
    for row, strip in enumerate(strips):
        spans = [(low, high - low) for low, high in strip.edges]
        axes.broken_barh([(1, highest)], (row - 0.3, 0.6), color="0.93")
        axes.broken_barh(spans, (row - 0.3, 0.6), color="tab:blue", linewidth=0.5)
        axes.broken_barh([(strip.safe, highest)], (row - 0.3, 0.6), color="tab:green", linewidth=0)
    axes.set_yticks(range(len(strips)), [format_length(strip.length) for strip in strips])
    axes.set_xscale("log")
    axes.set_xlim(min(strip.edges[0][0] for strip in strips if strip.edges) / 2, highest)
    axes.set_xlabel("base")
    axes.set_ylabel("context length")
    axes.set_title(title, fontsize=11)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


class ScoreCurve(NamedTuple):
    """Values against distance."""

    label: str
    distances: ArrayLike
    values: ArrayLike


@required_by("a figure")
def score_bounds_figure(lines: Sequence[ScoreCurve], title: str = "") -> Figure:
    """How the upper bound of the attention score falls with distance."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    for line in lines:
        axes.plot(np.asarray(line.distances), np.asarray(line.values), label=line.label, lw=0.9)
    axes.set_xlabel("distance m")
    axes.set_ylabel("bound, as a share of that at 0")
    axes.set_title(title, fontsize=11)
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure


class AngleStrip(NamedTuple):
    """What one pair does over a context: its cosine, and from where its angle is new."""

    label: str
    distances: ArrayLike
    cosines: ArrayLike
    trained_length: int
    new: ArrayLike
    """True at distances whose angle training has not seen."""


@required_by("a figure")
def angles_figure(strips: Sequence[AngleStrip], title: str = "") -> Figure:
    """A strip a schedule: trained distances blue, known angles grey, new ones red."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(8, 1.0 + 1.3 * len(strips)), layout="constrained")
    panels = figure.subplots(len(strips), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, strip in zip(panels, strips, strict=True):
        distances, cosines = np.asarray(strip.distances), np.asarray(strip.cosines)
        new, trained = np.asarray(strip.new), distances < strip.trained_length
        for mask, color, label in (
            (~trained & ~new, "0.55", "longer, but a known angle"),
            (~trained & new, "tab:red", "longer, and a new angle"),
            (trained, "tab:blue", "in the trained length"),
        ):
            axes.plot(distances, np.where(mask, cosines, np.nan), color=color, label=label)
        axes.set_title(strip.label, fontsize=9, loc="left", pad=3)
        axes.set_ylim(-1.15, 1.15)
        axes.margins(x=0)
        axes.spines[["top", "right"]].set_visible(False)
    longest = max(int(np.max(np.asarray(strip.distances))) + 1 for strip in strips)
    panels[-1].set_xticks(np.linspace(0, longest, 9))
    panels[-1].xaxis.set_major_formatter(FuncFormatter(_in_k))
    panels[-1].set_xlabel("distance m")
    panels[0].legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    figure.suptitle(title, fontsize=11)
    return figure
