"""A chart as one value, which the page (page/svg.py) and `figure()` (figures.py) both draw.

Makers of charts choose values, labels and axes; the two that draw them choose nothing. So both also
share the arithmetic here: where an axis ends, its ticks, and how far series stand apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from ropewalk.interval import Interval, written
from ropewalk.lengths import format_length

_TICKS = 6
_NEAR = 0.08
"""Labels of lengths nearer than this, as a share of the axis, are left out."""
_APART = 0.036
"""The distance of two series at one length, as a share of the axis."""
_LARGEST = 1e150

Span: TypeAlias = tuple[float, float]
T = TypeVar("T")


class Mark(NamedTuple):
    """One value of a series, with the ends of its interval if it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    name: str = ""
    """Written next to it."""
    is_rough: bool = False
    """True if it rests on few samples: drawn hollow."""

    @classmethod
    def of(cls, x: float, interval: Interval) -> Mark:
        return cls(x, interval.value, interval.low, interval.high)


class Series(NamedTuple):
    label: str
    """Empty: it is in no legend."""
    marks: tuple[Mark, ...]
    main: bool = False
    """Drawn thick: the one that the chart is about."""
    look: int | None = None
    """The number of its colour, marker and dashes; its place in the chart if none is given."""
    drawn: Literal["line", "steps", "points", "band"] = "line"
    """The form: steps hold each value until the next one; a band is filled from `low` to `high`."""
    subject: str = ""
    """Its subject, such as a method, which has one look in all charts shown together."""


class Axis(NamedTuple):
    label: str
    scale: Literal["linear", "log2", "log10", "symlog"] = "linear"
    shown: Literal["number", "length", "percent", "points"] = "number"
    """`points` are differences of shares, in hundredths."""
    highest: float | None = None
    """Values above are not drawn."""
    linear_to: float = 1.0
    """`symlog` is linear up to here, and so shows 0."""
    names: tuple[str, ...] = ()
    """The labels of 0, 1, 2, …, which are then all ticks."""

    def text(self, value: float) -> str:
        """A value as this axis writes it."""
        if self.shown == "percent":
            return f"{value:.0%}"
        if self.shown == "points":
            return f"{100 * value:+z.1f}"
        if self.shown == "length" and value == int(value) and value >= 1:
            return format_length(int(value))
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

    def texts(self, values: Sequence[float]) -> list[str]:
        """The labels of ticks, each unlike the others: with more digits where they need them."""
        if self.names:
            return list(self.names)
        if self.shown not in ("percent", "points"):
            return [self.text(value) for value in values]
        scale, by = (1, ".{}%") if self.shown == "percent" else (100, "+z.{}f")
        for digits in range(4):
            labels = [f"{scale * value:{by.format(digits)}}" for value in values]
            if len(set(labels)) == len(values):
                break
        return ["0" if label == "+0" else label for label in labels]

    def holds(self, value: float) -> bool:
        """True if the axis can show a value."""
        positive = self.scale not in ("log2", "log10") or value > 1 / _LARGEST
        beyond = self.highest is not None and value > self.highest
        return abs(value) < _LARGEST and positive and not beyond

    def place(self, value: float) -> float:
        """A value on the scale of this axis, where equal steps are equally far apart."""
        if self.scale == "linear":
            return value
        if self.scale == "symlog":
            turns = abs(value) / self.linear_to
            return math.copysign(turns if turns <= 1 else 1 + math.log10(turns), value)
        return math.log(value)


class Guide(NamedTuple):
    """A value of an axis that matters, and its name."""

    at: float
    label: str


class Chart(NamedTuple):
    """Values against something, one series a subject."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    verticals: tuple[Guide, ...] = ()
    horizontals: tuple[Guide, ...] = ()
    caption: str = ""

    @property
    def places(self) -> list[float]:
        """The places along the axis that have a value."""
        return sorted({mark.x for series in self.series for mark in series.marks})

    def shows(self, mark: Mark) -> bool:
        return self.x.holds(mark.x) and self.y.holds(mark.y)


class Tile(NamedTuple):
    """A cell of a grid: its value from 0 to 1, and the same in words."""

    value: float
    words: str
    is_vague: bool = False
    """True if too few samples tell it: drawn with dashes around."""
    shown: str = ""
    """Written in it; a percentage if empty."""

    @property
    def text(self) -> str:
        return self.shown or f"{self.value:.0%}{'?' * self.is_vague}"


class TileGrid(NamedTuple):
    """A value by two things, such as depth and length."""

    title: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    tiles: tuple[tuple[Tile | None, ...], ...]
    """By row, from the top."""
    caption: str = ""


def alike(charts: Iterable[T]) -> list[T]:
    """These charts, with one look for each subject, by its first place in any of them."""
    looks: dict[str, int] = {}

    def seen(series: Series) -> Series:
        look = series.subject and looks.setdefault(series.subject, len(looks))
        return series._replace(look=look) if isinstance(look, int) else series

    return [
        c._replace(series=tuple(map(seen, c.series))) if isinstance(c, Chart) else c for c in charts
    ]


def words(mark: Mark, axis: Axis) -> str:
    """A value with its interval."""
    if mark.low is None or mark.high is None:
        return axis.text(mark.y)
    return written(mark.y, (mark.low, mark.high), axis.text)


def ends(charts: Sequence[Chart]) -> tuple[Span, Span] | None:
    """The ends of both axes, for all these charts; None if no value can be drawn."""
    xs: list[float] = []
    ys: list[float] = []
    for shown in charts:
        marks = [m for s in shown.series for m in s.marks if shown.shows(m)]
        xs += [m.x for m in marks] + [line.at for line in shown.verticals]
        around = (y for m in marks for y in (m.y, m.low, m.high) if y is not None)
        ys += [*filter(shown.y.holds, around), *(line.at for line in shown.horizontals)]
        ys += [0.0, 1.0] if shown.y.shown == "percent" and marks else []
    if not xs or not ys:
        return None
    return _ends(xs, charts[0].x), _ends(ys, charts[0].y)


def _ends(values: Sequence[float], axis: Axis) -> Span:
    """From the lowest to the highest value, with a little room, and never nothing."""
    low, high = min(values), max(values)
    if axis.scale in ("log2", "log10"):
        ratio = max(high / low, 1.1)
        room = ratio**0.04
        return low / room, high * room
    if axis.scale == "symlog":
        return low - 0.05 * axis.linear_to, max(1.1 * high, axis.linear_to)
    if axis.shown == "percent" and (low, high) == (0, 1):
        return -0.03, 1.03
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def fractions(axis: Axis, span: Span) -> Callable[[float], float]:
    """The place of a value between the ends of an axis, from 0 to 1."""
    low, high = map(axis.place, span)
    # A value that no logarithm has lies below the axis, out of sight.
    least = 0.0 if axis.scale in ("linear", "symlog") else span[0] / 1e6
    return lambda value: (
        axis.place(max(value, least) if least else value) - low
    ) / (high - low)  # fmt: skip


def apart(shown: Chart, span: Span) -> float:
    """The distance between series at one length: never near the next one, nor over an end."""
    lines = [s for s in shown.series if s.drawn == "line"]
    measured = any(m.low is not None for s in lines for m in s.marks)
    if len(lines) < 2 or not measured or (shown.x.scale, shown.x.shown) != ("log2", "length"):
        return 0.0
    at = fractions(shown.x, span)
    positions = sorted({at(m.x) for s in lines for m in s.marks if shown.shows(m)})
    gap = min((b - a for a, b in pairwise(positions)), default=1.0)
    end = min((min(place, 1 - place) for place in positions), default=1.0)
    # Half of all series stand before their place; the rest of its way to an end is for a mark.
    return min(_APART, 0.4 * gap / (len(lines) - 1), 1.7 * end / (len(lines) - 1))


def x_ticks(shown: Chart, span: Span) -> list[float]:
    """The lengths that were measured, as far as there is room; else round values."""
    if (shown.x.scale, shown.x.shown) != ("log2", "length"):
        return ticks(shown.x, span)
    at, kept = fractions(shown.x, span), list[float]()
    lines = [s for s in shown.series if s.drawn != "points"] or shown.series
    for value in sorted({m.x for s in lines for m in s.marks if shown.shows(m)}):
        if not kept or at(value) - at(kept[-1]) >= _NEAR:
            kept.append(value)
    return kept


def ticks(axis: Axis, span: Span, most: int = _TICKS) -> list[float]:
    """Round values within the ends: multiples of 1, 2 or 5 times a power of ten, or powers."""
    low, high = span
    if axis.names:
        return [float(i) for i in range(len(axis.names))]
    if axis.scale == "symlog":
        last = math.floor(math.log10(max(high, 1.0)))
        powers = [10.0**n for n in range(last + 1) if 10.0**n >= axis.linear_to]
        return [0.0, axis.linear_to, *(n for n in powers if n > 2 * axis.linear_to)]
    # Powers, with round multiples if few fit; with fewer than two, divided like a linear axis.
    if axis.scale != "linear":
        base = 2 if axis.scale == "log2" else 10
        first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
        every = max(1, math.ceil((last - first + 1) / most))
        powers = [float(base) ** n for n in range(first, last + 1, every)]
        for steps in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3)) if base == 10 and len(powers) < 4 else ():
            fine = [m * 10.0**n for n in range(first - 1, last + 1) for m in steps]
            fine = [value for value in fine if low <= value <= high]
            if len(fine) <= most + 2:
                powers = fine
                break
        if len(powers) > 1:
            return powers
    # The least round step that leaves about `most` ticks; of lengths, a power of two.
    rough = (high - low) / (most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * 0.9)
    if axis.shown == "length" and rough > 1:
        step = 2.0 ** math.ceil(math.log2(rough) - 0.2)
    count = math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1
    return [round((math.ceil(low / step - 1e-9) + i) * step, 12) for i in range(count)]
