"""The blocks of a report page, as plain values. Drawing comes after, and decides nothing."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from ropewalk.reports.chart import Chart, TileGrid


class Cell(NamedTuple):
    """A cell of a table: its text, and its sort key if that is a number."""

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
    kind: Literal["plain", "warning"] = "plain"


class Code(NamedTuple):
    """Something to paste."""

    title: str
    text: str


Block: TypeAlias = Chart | TileGrid | Table | Paragraph | Code


class Section(NamedTuple):
    title: str
    blocks: tuple[Block, ...]


class Page(NamedTuple):
    title: str
    verdict: str
    """The outcome of the run, after the word."""
    reasons: tuple[str, ...]
    sections: tuple[Section, ...]
    missing: tuple[str, ...] = ()
    """The parts that an unfinished run still lacks."""
    facts: tuple[str, ...] = ()
    """The date, the duration, the machine, and the size of the model."""
    advice: str = ""
    """The recommended action."""
    notes: tuple[str, ...] = ()
    """The sources of the figures: run directory, versions."""
    word: str = ""
    """The verdict in a word or two, such as *works*: the first thing to read."""
    command: str = ""
    """The recommended action, to paste."""
    folded: tuple[str, ...] = ()
    """More of that, for who opens it: the configuration, with its checksums."""

    @property
    def told(self) -> str:
        """The verdict in one line."""
        return ": ".join(filter(None, (self.word, self.verdict)))
