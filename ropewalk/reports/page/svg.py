"""Charts as inline SVG, drawn here rather than by matplotlib.

An inline chart must follow the page's light or dark colours, its text must be text, and seventeen
tasks must fit in a page that can be mailed. matplotlib fixes colours and outlines glyphs. What is
needed of it, lines with intervals and grids, is little.

Colours are classes (style.css). No series is told apart by colour alone: each has a marker and a
dash pattern of its own, and all values stand in a table under the chart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from ropewalk.reports.page.blocks import Axis, Chart, Mark, Series, TileGrid
from ropewalk.reports.page.markup import Markup, tag

SERIES = 8
"""How many look different; then they begin again."""
WIDTH, HEIGHT = 420, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 20, 42  # above, for the names of lines
_TICKS = 6
_ROOM = 26  # units that a number in a tile needs
_NEAR = 14  # units between the labels of two lines
_LARGEST = 1e150
_UPWARDS = 225  # units that a text along the left side of a chart has
_WIDE = 6.0  # units that a letter takes, at most on average
_APART = 5.0  # units between the marks of two series that stand at the same place

Scale = Callable[[float], float]


def chart(shown: Chart) -> Markup:
    """Lines with intervals. A value that is not finite is not drawn."""
    marks = [m for s in shown.series for m in s.marks if _drawable(m, shown)]
    if not marks:
        return tag("p", "No value can be drawn.", class_="caption")
    xs = [m.x for m in marks] + [line.at for line in shown.verticals]
    ys = [y for m in marks for y in (m.y, m.low, m.high) if y is not None and _on(y, shown.y)]
    ys += [line.at for line in shown.horizontals]
    if shown.y.shown == "percent":
        ys += [0.0, 1.0]
    x_ends, y_ends = _ends(xs, shown.x), _ends(ys, shown.y)
    x = _scale(shown.x, x_ends, LEFT + 12, WIDTH - RIGHT - 12)
    y = _scale(shown.y, y_ends, HEIGHT - BOTTOM, TOP)
    at = sorted({m.x for m in marks}) if shown.x.shown == "length" else None
    parts = [
        *_y_axis(shown.y, y_ends, y),
        *_x_axis(shown.x, x_ends, x, at),
        *_lines(shown, x, y),
    ]
    moved = _apart(shown, [x(value) for value in at or ()])
    for i, series in enumerate(shown.series):
        own = [m for m in series.marks if _drawable(m, shown)]
        offset = moved * (i - (len(shown.series) - 1) / 2)
        look = i if series.look is None else series.look
        parts.append(_series(series, own, look, lambda v, o=offset: x(v) + o, y, shown))  # type: ignore[misc]
    return _picture(shown.title, _described(shown), HEIGHT, parts)


def _apart(shown: Chart, places: Sequence[float]) -> float:
    """How far series stand from each other at one length: never near the next length."""
    if shown.steps or len(shown.series) < 2 or not places:
        return 0.0
    gap = min((b - a for a, b in pairwise(places)), default=WIDTH)
    return min(_APART, 0.4 * gap / (len(shown.series) - 1))


def tiles(shown: TileGrid) -> Markup:
    """A grid of shares, each cell with its number."""
    left_edge = LEFT + 26  # room for the ends of a range, and the label beside them
    columns, rows = len(shown.columns), len(shown.rows)
    width = (WIDTH - left_edge - RIGHT) / max(1, columns)
    height = min(28.0, (HEIGHT - BOTTOM) / max(1, rows))
    bottom = TOP + height * rows
    parts = []
    for row, line in enumerate(shown.tiles):
        for column, tile in enumerate(line):
            if tile is None:
                continue
            left, top = left_edge + column * width, TOP + row * height
            kind = "vague" if tile.is_vague else f"heat{round(tile.value * 10)}"
            frame = f"M{left:.0f} {top:.0f}h{width - 1:.0f}v{height - 1:.0f}h{1 - width:.0f}z"
            parts.append(tag("path", tag("title", tile.words), d=frame, class_=kind))
            if width > _ROOM:
                at = left + width / 2, top + height / 2 + 3.5
                number = f"{tile.value:.0%}{'?' * tile.is_vague}"
                parts.append(_text(number, *at, "middle"))
    every = max(1, math.ceil(columns * 30 / (WIDTH - left_edge)))
    for i, name in enumerate(shown.columns[::every]):
        parts.append(_text(name, left_edge + (i * every + 0.5) * width, bottom + 13, "middle"))
    for i, name in enumerate(shown.rows):
        parts.append(_text(name, left_edge - 4, TOP + (i + 0.5) * height + 3.5, "end"))
    parts.append(_text(shown.x_label, (left_edge + WIDTH) / 2, bottom + 30, "middle", "label"))
    parts.append(_up(shown.y_label, (TOP + bottom) / 2))
    lines = (
        f"{name}: {', '.join(tile.words for tile in line if tile is not None)}"
        for name, line in zip(shown.rows, shown.tiles, strict=True)
    )
    words = f"{shown.y_label} by {shown.x_label}. {'; '.join(lines)}."
    return _picture(shown.title, words, bottom + BOTTOM - 6, parts)


def _picture(title: str, words: str, height: float, parts: Sequence[Markup]) -> Markup:
    """A picture in a frame as wide as all others, with a title and words for who cannot see it."""
    heads = tag("title", title), tag("desc", words)
    frame = f"0 0 {WIDTH} {height:.0f}"
    return tag("svg", *heads, *parts, viewBox=frame, role="img", class_="chart")


def _described(shown: Chart) -> str:
    """The chart in words: the first and last value of each series."""
    told = []
    for series in shown.series:
        own = [m for m in series.marks if _drawable(m, shown)]
        ends = own if len(own) < 2 else (own[0], own[-1])
        at = " to ".join(f"{words(m, shown.y)} at {shown.x.text(m.x)}" for m in ends)
        told.append(f"{series.label}: {at}" if at else f"{series.label}: no values")
    return f"{shown.y.label} by {shown.x.label}. {'; '.join(told)}."


def swatch(index: int, *, main: bool = False) -> Markup:
    """The line and marker of a series, for a legend."""
    return tag(
        "svg",
        tag("path", d="M0 6H24", class_=f"line s{index % SERIES}" + " main" * main),
        tag("path", d=_marker(index, 12, 6, 3.5), class_=f"mark s{index % SERIES}"),
        viewBox="0 0 24 12",
        class_="swatch",
        aria_hidden="true",
    )


def _series(
    series: Series, own: Sequence[Mark], index: int, x: Scale, y: Scale, shown: Chart
) -> Markup:
    kind = f"s{index % SERIES}" + (" main" if series.main else "")
    points = [(x(m.x), y(m.y)) for m in own]
    every = math.ceil(len(own) / 80)
    seen = "mark" if len(own) <= 40 else "mark hidden"  # until the pointer is there
    parts = [tag("path", d=_path(points, steps=shown.steps), class_=f"line {kind}")]
    for i, (mark, (left, top)) in enumerate(zip(own, points, strict=True)):
        if mark.low is not None and mark.high is not None:
            low = y(mark.low) if _on(mark.low, shown.y) else HEIGHT - BOTTOM
            high = y(mark.high) if _on(mark.high, shown.y) else TOP
            parts.append(tag("path", d=f"M{left:.1f} {low:.1f}V{high:.1f}", class_=f"bar {kind}"))
        if i % every == 0:
            told = f"{series.label}, {shown.x.text(mark.x)}: {words(mark, shown.y)}"
            parts.append(
                tag(
                    "path",
                    tag("title", told),
                    d=_marker(index, left, top, 4.5 if series.main else 3.2),
                    class_=f"{seen} {kind}",
                )
            )
    return tag("g", *parts)


def words(mark: Mark, axis: Axis) -> str:
    """A value with its interval."""
    if mark.low is None or mark.high is None:
        return axis.text(mark.y)
    return f"{axis.text(mark.y)} ({axis.text(mark.low)} to {axis.text(mark.high)})"


def _path(points: Sequence[tuple[float, float]], *, steps: bool) -> str:
    told = []
    for i, (x, y) in enumerate(points):
        if i == 0:
            told.append(f"M{x:.1f} {y:.1f}")
        elif steps:
            told.append(f"H{x:.1f}V{y:.1f}")
        else:
            told.append(f"L{x:.1f} {y:.1f}")
    return "".join(told)


def _marker(index: int, x: float, y: float, r: float) -> str:
    """A shape around a point: circle, square, diamond, triangles, cross, …"""
    match index % SERIES:
        case 0:
            return f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
        case 1:
            return f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z"
        case 2:
            return f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {r + 1}l{-r - 1} {r + 1}l{-r - 1} {-r - 1}z"
        case 3:
            return f"M{x:.1f} {y - r:.1f}l{r} {2 * r}h{-2 * r}z"
        case 4:
            return f"M{x:.1f} {y + r:.1f}l{r} {-2 * r}h{-2 * r}z"
        case 5:
            return f"M{x - r:.1f} {y - 1:.1f}h{2 * r}v2h{-2 * r}z"
        case 6:
            return f"M{x - 1:.1f} {y - r:.1f}h2v{2 * r}h-2z"
    return f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}h-2l{-2 * r} {-2 * r}z"


def _lines(shown: Chart, x: Scale, y: Scale) -> list[Markup]:
    """Those of values that matter; labels that would stand in each other's way are left out."""
    parts, last = [], -math.inf
    for line in sorted(shown.verticals):
        at = x(line.at)
        parts.append(tag("path", d=f"M{at:.1f} {TOP}V{HEIGHT - BOTTOM}", class_="rule"))
        if at - last > 5 * _NEAR:
            left = at > WIDTH * 0.7
            parts.append(
                _text(
                    line.label,
                    at - 3 if left else at + 3,
                    TOP - 6,
                    "end" if left else "start",
                    "note",
                )
            )
            last = at
    last = -math.inf
    for line in sorted(shown.horizontals):
        at = y(line.at)
        parts.append(tag("path", d=f"M{LEFT} {at:.1f}H{WIDTH - RIGHT}", class_="rule"))
        if abs(at - last) > _NEAR:
            parts.append(_text(line.label, WIDTH - RIGHT - 2, at - 3, "end", "note"))
            last = at
    return parts


def _y_axis(axis: Axis, ends: tuple[float, float], y: Scale) -> list[Markup]:
    parts = []
    values = ticks(axis, ends)
    for value, told in zip(values, axis.texts(values), strict=True):
        at = y(value)
        parts.append(tag("path", d=f"M{LEFT} {at:.1f}H{WIDTH - RIGHT}", class_="grid"))
        parts.append(_text(told, LEFT - 5, at + 3.5, "end"))
    label = axis.label if axis.scale == "linear" else f"{axis.label} (log scale)"
    return [*parts, _up(label, (TOP + HEIGHT - BOTTOM) / 2)]


def _x_axis(
    axis: Axis, ends: tuple[float, float], x: Scale, at: Sequence[float] | None
) -> list[Markup]:
    bottom = HEIGHT - BOTTOM
    parts = [tag("path", d=f"M{LEFT} {bottom}H{WIDTH - RIGHT}", class_="axis")]
    last = -math.inf
    for value in ticks(axis, ends) if at is None else at:
        place = x(value)
        if place - last >= 30:  # measured lengths may be close
            parts.append(_text(axis.text(value), place, bottom + 14, "middle"))
            last = place
    label = _text(axis.label, (LEFT + WIDTH - RIGHT) / 2, bottom + 31, "middle", "label")
    return [*parts, label]


def ticks(axis: Axis, ends: tuple[float, float]) -> list[float]:
    """Round values within the ends: multiples of 1, 2 or 5 times a power of ten, or powers."""
    low, high = ends
    if axis.scale != "linear":
        base = 2 if axis.scale == "log2" else 10
        first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
        every = max(1, math.ceil((last - first + 1) / _TICKS))
        powers = [float(base) ** n for n in range(first, last + 1, every)]
        if base == 10 and len(powers) < 4:
            fine = [m * 10.0**n for n in range(first - 1, last + 1) for m in (1, 2, 3, 5, 7)]
            powers = [value for value in fine if low <= value <= high]
        if len(powers) > 1:
            return powers
    rough = (high - low) / (_TICKS - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * 0.9)
    count = math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1
    return [round((math.ceil(low / step - 1e-9) + i) * step, 12) for i in range(count)]


def _ends(values: Sequence[float], axis: Axis) -> tuple[float, float]:
    """From the lowest to the highest value, with a little room, and never nothing."""
    low, high = min(values), max(values)
    if axis.scale != "linear":
        ratio = max(high / low, 1.1)
        room = ratio**0.04
        return low / room, high * room
    if axis.shown == "percent" and (low, high) == (0, 1):
        return -0.03, 1.03
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def _scale(axis: Axis, ends: tuple[float, float], start: float, stop: float) -> Scale:
    low, high = ends
    if axis.scale == "linear":
        return lambda value: start + (value - low) / (high - low) * (stop - start)
    wide = math.log(high / low)
    return lambda value: start + math.log(max(value, low / 1e6) / low) / wide * (stop - start)


def _drawable(mark: Mark, shown: Chart) -> bool:
    return _on(mark.x, shown.x) and _on(mark.y, shown.y)


def _on(value: float, axis: Axis) -> bool:
    """True if an axis can show a value."""
    return abs(value) < _LARGEST and (axis.scale == "linear" or value > 1 / _LARGEST)


def _text(value: str, x: float, y: float, anchor: str, kind: str | None = None) -> Markup:
    return tag("text", value, x=round(x, 1), y=round(y, 1), text_anchor=anchor, class_=kind)


def _up(value: str, y: float) -> Markup:
    """A text that runs upwards, along the left side. One that is too long is drawn narrower."""
    fitted: dict[str, str | float] = {"textLength": _UPWARDS, "lengthAdjust": "spacingAndGlyphs"}
    return tag(
        "text", value, transform=f"translate(12 {y:.0f}) rotate(-90)", text_anchor="middle",
        class_="label", **(fitted if len(value) * _WIDE > _UPWARDS else {}),
    )  # fmt: skip
