"""Blocks in a terminal: names and values from files are shown, never obeyed.

Square brackets are no markup, and control characters appear as escapes, in tables too. Sentences
and lines to paste are not wrapped: a terminal may do that, a copy must not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any, Literal, TextIO

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from ropewalk.blocks import LIST, Block, Cell, Code, Details, Heading, Paragraph, Table, Title
from ropewalk.chart import Chart, TileGrid
from ropewalk.errors import printable

_NUMBER = re.compile(r"[-+−×<–]?\d|–$|unknown$|failed$")
_NARROWEST = 40
"""Columns that are printed in at least; in none (`COLUMNS=0`), rich would print nothing."""
_LONG = 24
"""Characters of a cell that is a text, whatever it begins with."""
_STYLES = {"plain": "", "quiet": "dim", "verdict": "bold", "warning": "yellow"}


class Terminal(Console):
    """A console on standard output that prints text as text."""

    def __init__(self, file: TextIO | None = None, **settings: Any) -> None:
        super().__init__(
            file=file or sys.stdout, markup=False, emoji=False, highlight=False, **settings
        )
        self.width = max(self.width, _NARROWEST)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=printable(segment.text, keep="\n"))

    def on_broken_pipe(self) -> None:
        """Let the entry point end the command, with the status of other Unix tools."""
        raise BrokenPipeError


def show(
    blocks: Iterable[Block],
    terminal: Terminal,
    words: Callable[[str], str] = str,
    *,
    details: bool = False,
    lists: bool = False,
) -> None:
    """Print blocks; `words` puts the command's options for the parameters that texts name.

    Rows and lists of factors that a table or a line is `brief` about are shown if asked for.
    """

    def line(*parts: str | tuple[str, str]) -> None:
        terminal.print(Text.assemble(*parts), soft_wrap=True)

    shown = [each for each in blocks if _is_shown(each, details=details)]
    for block, after in zip_longest(shown, shown[1:]):
        match block:
            case Title():
                line((words(block.text), "bold"), words(block.rest))
            case Heading():
                if not isinstance(after, Heading | None):  # else nothing of it is shown here
                    line("\n", (words(block.text), "bold"))
            case Paragraph():
                line((words(block.text), _STYLES[block.kind]))
            case Table() | TileGrid():
                terminal.print(_grid(block, details=details))
                if block.caption and block.caption != getattr(after, "caption", ""):
                    line((words(block.caption), "dim"))
            case Code():
                line(f"\n# {words(block.title)}") if block.title else None
                line(block.text if lists else LIST.sub(_count, block.text))
            case Details():
                show(block.blocks, terminal, words, details=True)


def _is_shown(block: Block, *, details: bool) -> bool:
    """Charts are not, since their values stand in tables; nor what is brief to nothing."""
    if isinstance(block, Chart):
        return False
    if isinstance(block, Table):
        return details or block.brief != ()
    return details or not isinstance(block, Details)


def _grid(block: Table | TileGrid, *, details: bool) -> Grid:
    """A plain table, columns with numbers to the right."""
    if isinstance(block, TileGrid):
        return _heat_map(block)
    grid = Grid(box=box.SIMPLE_HEAD, title=block.title or None, pad_edge=False)
    grid.title_justify = "left"
    for i, column in enumerate(block.columns):
        filled = [row[i].text for row in block.rows if row[i].text]
        short = max(map(len, filled), default=0) < _LONG
        numbers = i > 0 and short and all(map(_NUMBER.match, filled))
        # Only texts are wrapped, for half a number is another number.
        side: Literal["right", "left"] = "right" if numbers else "left"
        grid.add_column(column, justify=side, overflow="fold", no_wrap=numbers)
    for i, row in enumerate(block.rows):
        if block.groups and i and row[0].text:
            grid.add_section()
        if details or block.brief is None or i in block.brief:
            grid.add_row(*map(_cell, row))
    return grid


def _cell(cell: Cell) -> Text:
    return Text.assemble(cell.text, (f" {cell.quiet}", "dim") if cell.quiet else "")


def _heat_map(block: TileGrid) -> Grid:
    grid = _grid(Table("", (block.title, *block.columns), ()), details=True)
    for name, row in zip(block.rows, block.tiles, strict=True):
        shades = []
        for tile in row:
            if tile is None:
                shades.append(Text("–"))
                continue
            red, green = round(200 * (1 - tile.value)) + 40, round(160 * tile.value) + 40
            color = "rgb(128,128,128)" if tile.is_vague else f"rgb({red},{green},60)"
            shades.append(Text(f" {tile.text:>4} ", style=f"white on {color}"))
        grid.add_row(name, *shades)
    return grid


def _count(factors: re.Match[str]) -> str:
    return f"[… {factors[0].count(',') + 1} factors …]"
