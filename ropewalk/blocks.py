"""The parts of a result that a person should see, as plain values: `blocks()` yields them in order.

    def blocks(self) -> Iterator[Block]:
        yield Title(self.model, f" on {self.device}")
        yield Table("", ("length", "score"), tuple(rows), "95% intervals.")
        yield Paragraph(self.summary(), "verdict")

Four renderers draw them and decide nothing: a terminal, a page, a notebook, and Markdown for cards
(`ropewalk/reports`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from ropewalk.chart import Chart, TileGrid


class Cell(NamedTuple):
    """A cell of a table: its text, and its sort key if that is a number."""

    text: str
    key: float | None = None
    link: str = ""
    """A file that it leads to, from the page."""
    quiet: str = ""
    """Read after the text, such as its interval."""


def cells(*texts: str) -> tuple[Cell, ...]:
    """A row of texts."""
    return tuple(map(Cell, texts))


class Title(NamedTuple):
    """The first line: what the result is of, and the rest of the line."""

    text: str
    rest: str = ""


class Heading(NamedTuple):
    """Begins a section, which reaches to the next heading."""

    text: str


class Table(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    brief: tuple[int, ...] | None = None
    """The rows that a terminal shows if it is not asked for details; None for all."""
    groups: bool = False
    """True if a row with a first cell begins a group, whose other rows have none."""


Kind: TypeAlias = Literal["plain", "verdict", "warning", "quiet"]


class Paragraph(NamedTuple):
    text: str
    kind: Kind = "plain"


LIST = re.compile(r"\[(?:[-+.e0-9]+, ){8,}[-+.e0-9]+\]")
"""A list of factors, one for each pair, among lines to paste."""


class Code(NamedTuple):
    """Something to paste, under a line that says what it is for."""

    title: str
    text: str


class Details(NamedTuple):
    """Blocks that few people need: a terminal shows them if it is asked to."""

    blocks: tuple[Title | Heading | Table | Paragraph | Code | Chart, ...]
    title: str = "Details"


Block: TypeAlias = Title | Heading | Chart | TileGrid | Table | Paragraph | Code | Details


class Section(NamedTuple):
    title: str
    blocks: tuple[Block, ...]


class KeyFigure(NamedTuple):
    """A number that a verdict rests on, such as `94%`."""

    value: str
    label: str
    ends: str = ""
    """Its interval."""


class Page(NamedTuple):
    title: str
    verdict: str
    """The outcome of the run, after the word: a paragraph a line."""
    reasons: tuple[str, ...]
    sections: tuple[Section, ...]
    missing: tuple[str, ...] = ()
    """The parts that an unfinished run still lacks."""
    facts: tuple[str, ...] = ()
    """The date, the duration, the machine, and the size of the model."""
    notes: tuple[str, ...] = ()
    """The sources of the figures: run directory, versions."""
    folded: tuple[str, ...] = ()
    """More of that, for who opens it: the configuration, with its checksums."""
    word: str = ""
    """The verdict in a word or two, such as *works*: the first thing to read."""
    to_do: Code | None = None
    """The recommended action, and the command or the code for it."""
    evidence: tuple[Block, ...] = ()
    """The figures that the verdict rests on; the first is next to it, others follow the command."""
    remarks: tuple[tuple[str, str], ...] = ()
    """On the outcome, such as the text that was read: a name and a sentence each."""
    figures: tuple[KeyFigure, ...] = ()
    """The numbers of the verdict, before its sentences."""

    @property
    def told(self) -> str:
        """The verdict in one line."""
        figures = "; ".join(f"{each.value} {each.label}" for each in self.figures)
        said = ". ".join(filter(None, (figures, self.verdict.replace("\n", " "))))
        return ": ".join(filter(None, (self.word, said)))


def sections_of(blocks: Iterable[Block], first: str) -> list[Section]:
    """Blocks by the headings among them; `first` is the heading of those before."""
    sections: dict[str, list[Block]] = {first: []}
    for block in blocks:
        if isinstance(block, Heading):
            first = block.text
        else:
            sections.setdefault(first, []).append(block)
    return [Section(title, tuple(members)) for title, members in sections.items() if members]
