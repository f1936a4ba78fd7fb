"""Charts drawn by matplotlib, and the files of figures.

The ending of a file chooses the format, and the same values give the same bytes. A picture carries
a checksum of its own content, as everything that ropewalk writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.chart import (
    Axis,
    Chart,
    Mark,
    Series,
    Span,
    TileGrid,
    alike,
    apart,
    ends,
    ticks,
    x_ticks,
)
from ropewalk.errors import InvalidValue, MissingExtra
from ropewalk.extras import required_by
from ropewalk.outputs import UNSIGNED, cannot_write, signed, write_atomically
from ropewalk.progress import Notice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES: tuple[str, ...] = ("png", "svg")
"""The formats of each figure that a run directory keeps."""
_MARKERS = "osD^vPX*"
_METADATA = {"png": {"ropewalk": UNSIGNED}, "svg": {"Date": None, "Description": UNSIGNED}}


def as_text(name: str) -> str:
    """A name that a user or a file gave, for a figure: dollar signs would begin a formula."""
    return name.replace("$", r"\$")


@required_by("a figure")
def figure(
    charts: Sequence[Chart | TileGrid],
    title: str = "",
    *,
    size: tuple[float, float] | None = None,
    strips: bool = False,
) -> Figure:
    """All charts in one figure, at most three in a row. Strips lie below each other on one axis."""
    from matplotlib.figure import Figure

    charts = alike(charts)
    columns = 1 if strips else min(3, len(charts))
    rows = -(-len(charts) // columns)
    wide, high = (8, 4.5) if len(charts) == 1 else (4.6, 3.6)
    first = charts[0]
    if isinstance(first, TileGrid):
        wide, high = 0.7 * len(first.columns) + 1.4, 0.34 * len(first.rows) + 1.4
        title = title or first.caption.partition("; ")[2]  # of the marks in its tiles
    elif first.y.names:
        wide, high = 8.5, 1.1 + 0.55 * len(first.y.names)
    wide, high = size or (wide, high)
    drawn = Figure(figsize=(wide * columns, high * rows + 0.3 * bool(title)), layout="constrained")
    grid = drawn.subplots(rows, columns, squeeze=False, sharex=strips, sharey=strips)
    shared = ends([c for c in charts if isinstance(c, Chart)]) if strips else None
    for axes, shown in zip(grid.flat, charts, strict=False):
        if isinstance(shown, TileGrid):
            _tiles(axes, shown)
        else:
            _chart(axes, shown, shared or ends([shown]), most=3 if strips else 7)
        place = "left" if strips else "center"
        if not (len(charts) == 1 and title):
            above = 14 if isinstance(shown, Chart) and any(g.label for g in shown.verticals) else 5
            axes.set_title(as_text(shown.title), fontsize=9 if strips else 10, loc=place, pad=above)
        if strips:
            axes.label_outer()
    for axes in list(grid.flat)[len(charts) :]:
        axes.set_axis_off()
    _legends(drawn, list(grid.flat))
    drawn.suptitle(as_text(title), fontsize=11) if title else None
    return drawn


def _legends(drawn: Figure, all_axes: Sequence[Axes]) -> None:
    """One legend below if all charts show the same series; else one in each."""
    handles = [axes.get_legend_handles_labels() for axes in all_axes]
    named = [legend for legend in handles if legend[1]]
    if named and all(legend[1] == named[0][1] for legend in named):
        drawn.legend(*named[0], frameon=False, fontsize=8, loc="outside lower center", ncols=3)
        return
    for axes, legend in zip(all_axes, handles, strict=True):
        if legend[1]:
            axes.legend(frameon=False, fontsize=7)


def _chart(axes: Axes, shown: Chart, spans: tuple[Span, Span] | None, most: int) -> None:
    x_label, y_label = as_text(shown.x.label), as_text(shown.y.label)
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    if spans is None:
        return
    scale, more = _scale(shown.x)
    axes.set_xscale(scale, **more)
    scale, more = _scale(shown.y)
    axes.set_yscale(scale, **more)
    axes.grid(axis="y", color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    # Series stand apart, so that the intervals at one length do not cover each other.
    step = apart(shown, spans[0])
    for i, series in enumerate(shown.series):
        look = i if series.look is None else series.look
        _series(axes, shown, series, look, step * (i - (len(shown.series) - 1) / 2))
    for line in shown.verticals:
        axes.axvline(line.at, color="0.5", linewidth=0.9, linestyle=":", zorder=0)
        axes.annotate(
            as_text(line.label), (line.at, 1), (-4, 3), ("data", "axes fraction"),
            "offset points", fontsize=7, color="0.4",
        )  # fmt: skip
    for line in shown.horizontals:
        axes.axhline(line.at, color="0.5", linewidth=0.9, linestyle=":", zorder=0)
        if line.label:
            axes.annotate(
                as_text(line.label), (1, line.at), (-2, 2), ("axes fraction", "data"),
                "offset points", fontsize=7, color="0.4", ha="right",
            )  # fmt: skip
    across, up = x_ticks(shown, spans[0]), ticks(shown.y, spans[1], most)
    axes.set_xticks(across, shown.x.texts(across))
    axes.set_yticks(up, shown.y.texts(up))
    axes.minorticks_off()
    axes.set_xlim(*spans[0])
    axes.set_ylim(*spans[1])


def _scale(axis: Axis) -> tuple[str, dict[str, float]]:
    if axis.scale == "symlog":
        return "symlog", {"linthresh": axis.linear_to}
    if axis.scale == "linear":
        return "linear", {}
    return "log", {"base": 2 if axis.scale == "log2" else 10}


def _series(axes: Axes, shown: Chart, series: Series, look: int, moved: float) -> None:
    from matplotlib.transforms import Affine2D

    color, label = f"C{look % 10}", as_text(series.label) or None
    none = math.nan
    marks = [m if shown.shows(m) else Mark(m.x, none, none, none) for m in series.marks]
    xs = [m.x for m in marks]
    lows, highs = ([none if end is None else end for end in side] for side in (
        [m.low for m in marks], [m.high for m in marks]))  # fmt: skip
    if series.drawn == "band":
        axes.fill_between(xs, lows, highs, color=color, linewidth=0.5, label=label)
        return
    # Series are moved apart by a share of the axes: on a log scale, data has no even offset.
    place = axes.transScale + axes.transLimits + Affine2D().translate(moved, 0) + axes.transAxes
    axes.vlines(xs, lows, highs, color=color, lw=1, alpha=0.7, transform=place)
    few = len(marks) <= 40
    axes.plot(
        xs,
        [m.y for m in marks],
        marker=_MARKERS[look % len(_MARKERS)] if few else "",
        linestyle="" if series.drawn == "points" else "-",
        drawstyle="steps-post" if series.drawn == "steps" else "default",
        color=color,
        label=label,
        markersize=6 if series.main else 4,
        linewidth=2.4 if series.main else 1.3 if few else 0.9,
        zorder=3 if series.main else 2,
        transform=place,
    )
    # Rough values are hollow; a name stands on the left where the next mark would cover it.
    for m in marks:
        if m.is_rough:
            axes.plot(
                [m.x], [m.y], marker=_MARKERS[look % len(_MARKERS)], color=color, zorder=4,
                markerfacecolor="white", markersize=6 if series.main else 4, transform=place,
            )  # fmt: skip
        if m.name:
            left = any(m.x < n.x < 2.2 * m.x and n.y == m.y for n in marks)
            axes.annotate(
                as_text(m.name), (m.x, m.y), (-7 if left else 7, -3), "data", "offset points",
                fontsize=8, ha="right" if left else "left",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8},
            )  # fmt: skip


def _tiles(axes: Axes, shown: TileGrid) -> None:
    import matplotlib

    colors = matplotlib.colormaps["viridis"]
    for y, row in enumerate(shown.tiles):
        for x, tile in enumerate(row):
            if tile is None:
                continue
            color, ink = colors(tile.value), "black" if tile.value > 0.5 else "white"
            axes.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], color=color, linewidth=0)
            if tile.is_vague:
                left, right, top, low = x + 0.03, x + 0.97, y + 0.07, y + 0.93
                around = [left, right, right, left, left], [top, top, low, low, top]
                axes.plot(*around, color=ink, linewidth=0.8, linestyle="--")
            axes.text(x + 0.5, y + 0.5, tile.text, color=ink, size=7, ha="center", va="center")
    axes.set_xlim(0, len(shown.columns))
    axes.set_ylim(len(shown.rows), 0)
    axes.set_xticks([i + 0.5 for i in range(len(shown.columns))], shown.columns, fontsize=8)
    axes.set_yticks([i + 0.5 for i in range(len(shown.rows))], shown.rows, fontsize=8)
    axes.tick_params(length=0)
    axes.set_xlabel(shown.x_label, fontsize=9)
    axes.set_ylabel(shown.y_label, fontsize=9)


def format_of(path: Path, key: str = "path") -> str:
    """The format that a file's ending chooses; another ending is refused."""
    ending = path.suffix.lstrip(".").lower()
    if ending not in PICTURES:
        endings = " or ".join(f".{each}" for each in PICTURES)
        raise InvalidValue(key, str(path), f"must end in {endings}", "change the ending")
    return ending


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure."""
    path = Path(path)
    ending = format_of(path)
    import matplotlib

    drawn = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "ropewalk"}):
        figure.savefig(drawn, format=ending, dpi=150, metadata=_METADATA.get(ending))
    write_atomically(path, signed(drawn.getvalue()))


def keep_figures(
    pictures: Mapping[str, Sequence[Chart | TileGrid]], folder: Path, notice: Notice
) -> None:
    """Draw and write the figures of a finished run; without matplotlib, a notice says so."""
    try:
        for name, charts in pictures.items():
            save_pictures(figure(charts), folder / name)
    except MissingExtra as error:
        notice(f"no figures: {error}")


def save_pictures(figure: Figure, stem: Path) -> None:
    """Write a figure in every format that a run directory keeps."""
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(stem.parent, error) from None
    for ending in PICTURES:
        save(figure, stem.with_name(f"{stem.name}.{ending}"))
