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
from itertools import groupby, pairwise

from ropewalk.chart import (
    Chart,
    Mark,
    Series,
    Span,
    TileGrid,
    apart,
    ends,
    fractions,
    ticks,
    words,
    x_ticks,
)
from ropewalk.reports.page.markup import Markup, tag

SERIES = 8
"""The number of different looks; then they begin again."""
WIDTH, HEIGHT = 420, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 20, 42  # above, for the names of lines
_ROOM = 26  # units that a number in a tile needs
_NEAR = 14  # units between the labels of two lines
_UPWARDS = 225  # units that a text along the left side of a chart has
_FEW, _SHORT = 4, 18  # lines, and letters of their names, that are written at their ends
_WIDE, _BOLD, _NOTE = 6.0, 7.8, 5.5  # units that a letter takes, at most on average
_TILE = 7.0  # units that a letter of a grid takes on a phone
_DARK = 0.7  # the share from which a tile has the other ink

Scale = Callable[[float], float]


def chart(shown: Chart) -> Markup:
    """Lines with intervals. A value that is not finite is not drawn."""
    spans = ends([shown])
    if spans is None:
        return tag("p", "No value can be drawn.", class_="caption")
    x_at, y_at = fractions(shown.x, spans[0]), fractions(shown.y, spans[1])
    left, right = LEFT + 12.0, WIDTH - RIGHT - 12.0
    if named := has_names(shown):
        right -= _BOLD * max(len(series.label) for series in shown.series)
    longest = max((len(mark.name) for s in shown.series for mark in s.marks[-1:]), default=0)
    right -= min(_NOTE * longest, WIDTH / 4)
    moved = apart(shown, spans[0])

    def x(value: float) -> float:
        return left + x_at(value) * (right - left)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - y_at(value) * (HEIGHT - BOTTOM - TOP)

    parts = [*_y_axis(shown, spans[1], y), *_x_axis(shown, spans[0], x), *_lines(shown, x, y)]
    for i, series in enumerate(shown.series):
        offset = moved * (i - (len(shown.series) - 1) / 2) * (right - left)
        look = i if series.look is None else series.look
        parts.append(_series(series, look, lambda v, o=offset: x(v) + o, y, shown))  # type: ignore[misc]
        if named:
            last = series.marks[-1]
            at = x(last.x) + offset + 9, y(last.y) + 4
            parts.append(_text(series.label, *at, "start", f"end s{look % SERIES}"))
    return _picture(shown.title, described(shown), HEIGHT, parts)


def has_names(shown: Chart) -> bool:
    """True if the lines of a chart are few and end apart, so that each is named at its end."""
    spans = ends([shown])
    drawn = [s for s in shown.series if s.drawn == "line" and s.marks and shown.shows(s.marks[-1])]
    if spans is None or len(drawn) != len(shown.series) or not 2 <= len(drawn) <= _FEW:
        return False
    at = fractions(shown.y, spans[1])
    last = sorted(at(s.marks[-1].y) * (HEIGHT - BOTTOM - TOP) for s in drawn)
    short = all(len(s.label) <= _SHORT for s in drawn)
    named = any(mark.name for s in drawn for mark in s.marks[-1:])
    together = len({s.marks[-1].x for s in drawn}) == 1
    return short and together and not named and all(b - a > _NEAR for a, b in pairwise(last))


def tiles(shown: TileGrid) -> Markup:
    """A grid of shares, each cell with its number."""
    left_edge = min(16 + _TILE * max(map(len, shown.rows), default=0), WIDTH / 3)
    columns, rows = len(shown.columns), len(shown.rows)
    width = (WIDTH - left_edge - 2) / max(1, columns)
    height = min(28.0, (HEIGHT - BOTTOM) / max(1, rows))
    bottom = TOP + height * rows
    longest = max((len(t.text) for line in shown.tiles for t in line if t), default=0)
    # The tiles, each with its share where there is room for the digits.
    drawn = []
    for row, line in enumerate(shown.tiles):
        for column, tile in enumerate(line):
            if tile is None:
                continue
            left, top = left_edge + column * width, TOP + row * height
            frame, title = _box(left + 1, top + 1, width - 3, height - 3), tag("title", tile.words)
            drawn.append(tag("path", title, d=frame, opacity=_shade(tile.value)))
            kind = " dark" * (tile.value > _DARK)
            if tile.is_vague:
                inside = _box(left + 3, top + 3, width - 7, height - 7)
                drawn.append(tag("path", d=inside, class_=f"vague{kind}"))
            if width > _ROOM:
                at = left + width / 2, top + height / 2 + 3.5
                written = tile.text if _TILE * longest < width - 2 else f"{tile.value:.0%}"
                drawn.append(_text(written, *at, "middle", kind.strip() or None))
    parts = [tag("g", *drawn, class_="tiles")]
    # Names of columns are left out where they would run into each other.
    every = max(1, math.ceil(columns * 30 / (WIDTH - left_edge)))
    for i, name in enumerate(shown.columns[::every]):
        parts.append(_text(name, left_edge + (i * every + 0.5) * width, bottom + 13, "middle"))
    for i, name in enumerate(shown.rows):
        parts.append(_text(name, left_edge - 4, TOP + (i + 0.5) * height + 3.5, "end"))
    parts.append(_text(shown.x_label, left_edge, bottom + 30, "start", "label"))
    parts.append(_text(shown.y_label, left_edge - 4, TOP - 6, "end", "label"))
    parts += _key(bottom + 22)
    # The same in words, for readers who cannot see it.
    lines = (
        f"{name}: {', '.join(tile.words for tile in line if tile is not None)}"
        for name, line in zip(shown.rows, shown.tiles, strict=True)
    )
    words = f"{shown.y_label} by {shown.x_label}. {'; '.join(lines)}."
    return _picture(shown.title, words, bottom + BOTTOM - 6, parts)


def _key(top: float) -> list[Markup]:
    """The colours of tiles, from 0 to 100%, at the right end below them."""
    left, wide = WIDTH - RIGHT - 100, 66
    boxes = (
        tag("path", d=_box(left + i, top, 3, 8), opacity=_shade(i / wide))
        for i in range(0, wide, 3)
    )
    return [
        _text("0%", left - 4, top + 8, "end", "note"),
        tag("g", *boxes, class_="tiles"),
        _text("100%", left + wide + 4, top + 8, "start", "note"),
    ]


def _shade(share: float) -> float:
    """The colour of a share, which none of them lacks."""
    return round(0.08 + 0.92 * share, 2)


def _box(left: float, top: float, wide: float, high: float) -> str:
    return f"M{left:.0f} {top:.0f}h{wide:.0f}v{high:.0f}h{-wide:.0f}z"


def _picture(title: str, words: str, height: float, parts: Sequence[Markup]) -> Markup:
    """A picture in a frame as wide as all others, with a title and words for who cannot see it."""
    heads = tag("title", title), tag("desc", words)
    frame = f"0 0 {WIDTH} {height:.0f}"
    return tag("svg", *heads, *parts, viewBox=frame, role="img", class_="chart")


def described(shown: Chart) -> str:
    """The chart in words: the first and last value of each series."""
    lines = []
    for series in shown.series:
        marks = [*filter(shown.shows, series.marks)]
        both = marks if len(marks) < 2 else (marks[0], marks[-1])
        at = " to ".join(f"{words(m, shown.y)} at {shown.x.text(m.x)}" for m in both)
        lines.append(f"{series.label}: {at}" if at else f"{series.label}: no values")
    return f"{shown.y.label} by {shown.x.label}. {'; '.join(lines)}."


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


def _series(series: Series, index: int, x: Scale, y: Scale, shown: Chart) -> Markup:
    kind = f"s{index % SERIES}" + (" main" if series.main else "")
    marks = [*filter(shown.shows, series.marks)]

    def ends_of(mark: Mark) -> Span:
        low, high = (mark.y if end is None else end for end in (mark.low, mark.high))
        return (
            y(low) if shown.y.holds(low) else HEIGHT - BOTTOM,
            y(high) if shown.y.holds(high) else TOP,
        )

    if series.drawn == "band":
        pieces = [[*piece] for seen, piece in groupby(series.marks, shown.shows) if seen]
        edges = [[(x(m.x), *ends_of(m)) for m in piece] for piece in pieces]
        there = [[(at, low) for at, low, _ in piece] for piece in edges]
        back = [[(at, high) for at, _, high in piece[::-1]] for piece in edges]
        around = "".join(_path(a + b) for a, b in zip(there, back, strict=True))
        return tag("g", tag("path", d=around, class_=f"mark {kind}"))
    every = math.ceil(len(marks) / 80)
    seen = "mark" if len(marks) <= 40 else "mark hidden"  # until the pointer is there
    parts = []
    if series.drawn != "points":
        line = [(x(m.x), y(m.y)) if shown.shows(m) else None for m in series.marks]
        parts.append(
            tag("path", d=_path(line, steps=series.drawn == "steps"), class_=f"line {kind}")
        )
    for i, mark in enumerate(marks):
        left, top = x(mark.x), y(mark.y)
        if mark.low is not None and mark.high is not None:
            low, high = ends_of(mark)
            parts.append(tag("path", d=f"M{left:.1f} {low:.1f}V{high:.1f}", class_=f"bar {kind}"))
        if i % every == 0:
            title = f"{series.label}, {shown.x.text(mark.x)}: {words(mark, shown.y)}"
            size = 4.5 if series.main else 3.2
            shape = _marker(index, left, top, size)
            hollow = " hollow" * mark.is_rough
            parts.append(tag("path", tag("title", title), d=shape, class_=f"{seen} {kind}{hollow}"))
        if mark.name:  # not in the way of the line to the next
            rises = i + 1 < len(marks) and marks[i + 1].y > mark.y
            parts.append(_text(mark.name, left + 5, top + (13 if rises else -6), "start", "note"))
    return tag("g", *parts)


def _path(points: Sequence[Span | None], *, steps: bool = False) -> str:
    """A line through points, in pieces where one of them is missing."""
    moves, joined = [], False
    for point in points:
        if point is not None:
            x, y = point
            to = f"L{x:.1f} {y:.1f}" if not steps else f"H{x:.1f}V{y:.1f}"
            moves.append(to if joined else f"M{x:.1f} {y:.1f}")
        joined = point is not None
    return "".join(moves)


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
            side = (at - 3, TOP - 6, "end") if at > WIDTH * 0.7 else (at + 3, TOP - 6, "start")
            parts.append(_text(line.label, *side, "note"))
            last = at
    last = -math.inf
    for line in sorted(shown.horizontals):
        at = y(line.at)
        parts.append(tag("path", d=f"M{LEFT} {at:.1f}H{WIDTH - RIGHT}", class_="rule limit"))
        if abs(at - last) > _NEAR:
            below = 11 if at + _NEAR < HEIGHT - BOTTOM else -3
            parts.append(_text(line.label, WIDTH - RIGHT - 2, at + below, "end", "note"))
            last = at
    return parts


def _y_axis(shown: Chart, span: Span, y: Scale) -> list[Markup]:
    parts, axis = [], shown.y
    values = ticks(axis, span)
    for value, text in zip(values, axis.texts(values), strict=True):
        at = y(value)
        parts.append(tag("path", d=f"M{LEFT} {at:.1f}H{WIDTH - RIGHT}", class_="grid"))
        parts.append(_text(text, LEFT - 5, at + 3.5, "end"))
    label = axis.label if axis.scale == "linear" else f"{axis.label} (log scale)"
    return [*parts, _up(label, (TOP + HEIGHT - BOTTOM) / 2)]


def _x_axis(shown: Chart, span: Span, x: Scale) -> list[Markup]:
    bottom, axis = HEIGHT - BOTTOM, shown.x
    parts = [tag("path", d=f"M{LEFT} {bottom}H{WIDTH - RIGHT}", class_="axis")]
    values = x_ticks(shown, span)
    for value, text in zip(values, axis.texts(values), strict=True):
        parts.append(_text(text, x(value), bottom + 14, "middle"))
    label = _text(axis.label, (LEFT + WIDTH - RIGHT) / 2, bottom + 31, "middle", "label")
    return [*parts, label]


def _text(value: str, x: float, y: float, anchor: str, kind: str | None = None) -> Markup:
    return tag("text", value, x=round(x, 1), y=round(y, 1), text_anchor=anchor, class_=kind)


def _up(value: str, y: float) -> Markup:
    """A text that runs upwards, along the left side. One that is too long is drawn narrower."""
    fitted: dict[str, str | float] = {"textLength": _UPWARDS, "lengthAdjust": "spacingAndGlyphs"}
    return tag(
        "text", value, transform=f"translate(12 {y:.0f}) rotate(-90)", text_anchor="middle",
        class_="label", **(fitted if len(value) * _WIDE > _UPWARDS else {}),
    )  # fmt: skip
