"""The blocks of a report page, as plain values. Drawing comes after, and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from ropewalk.lengths import format_length


class Mark(NamedTuple):
    """One value of a series, with the ends of its interval where it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Series(NamedTuple):
    label: str
    marks: tuple[Mark, ...]
    main: bool = False
    """Drawn thick: the one that the page is about."""
    look: int | None = None
    """The number of its colour, marker and dashes; its place in the chart where none is given."""


class Axis(NamedTuple):
    label: str
    scale: Literal["linear", "log2", "log10"] = "linear"
    shown: Literal["number", "length", "percent", "points"] = "number"
    """`points` are differences of shares, in hundredths."""

    def text(self, value: float) -> str:
        """A value as this axis writes it."""
        if self.shown == "percent":
            return f"{value:.0%}"
        if self.shown == "points":
            return f"{100 * value:+z.0f}" if round(100 * value) else "0"
        if self.shown == "length" and value == int(value) and value >= 1:
            return format_length(int(value))
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

    def texts(self, values: Sequence[float]) -> list[str]:
        """The labels of ticks, each unlike the others: with more digits where they need them."""
        labels = [self.text(value) for value in values]
        for digits in (1, 2, 3):
            if len(set(labels)) == len(values) or self.shown not in ("percent", "points"):
                break
            by = f".{digits}%" if self.shown == "percent" else f"+z.{digits}f"
            scale = 1 if self.shown == "percent" else 100
            labels = [f"{scale * value:{by}}" for value in values]
        return labels


class Guide(NamedTuple):
    """A value of an axis that matters, with what it is."""

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
    steps: bool = False
    """Each value holds until the next one."""
    caption: str = ""


class Tile(NamedTuple):
    """A cell of a grid: its value from 0 to 1, and what it is in words."""

    value: float
    words: str
    is_vague: bool = False
    """Its interval is too wide to say anything: drawn without a colour."""


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


class Cell(NamedTuple):
    """A cell of a table: what is read, and what rows are sorted by where that is a number."""

    text: str
    key: float | None = None
    link: str = ""
    """A file that it leads to, from the page."""


class Table(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""


class Paragraph(NamedTuple):
    text: str
    kind: Literal["plain", "verdict", "warning"] = "plain"


class Code(NamedTuple):
    """Something to paste."""

    title: str
    text: str


Block: TypeAlias = Chart | TileGrid | Table | Paragraph | Code


class Section(NamedTuple):
    title: str
    blocks: tuple[Block, ...]
    command: str = ""
    """The command that made its figures."""


class Page(NamedTuple):
    title: str
    verdict: str
    """The first thing to read: what came of the run."""
    reasons: tuple[str, ...]
    sections: tuple[Section, ...]
    missing: tuple[str, ...] = ()
    """The parts that an unfinished run still lacks."""
    facts: tuple[str, ...] = ()
    """When, for how long, on which machine, and how large the model is."""
    advice: str = ""
    """What to do now."""
    notes: tuple[str, ...] = ()
    """Where the figures come from: run directory, versions."""
    folded: tuple[str, ...] = ()
    """More of that, for who opens it: the configuration, with its checksums."""
