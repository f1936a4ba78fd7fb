"""Blocks as Markdown, for a README that a hub or GitHub renders: text stays text there.

Whatever a name or a licence holds, it opens no HTML, no link, no heading and no code. A chart is a
picture beside the text, light or dark as its reader's system is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from urllib.parse import quote

from ropewalk.blocks import Block, Cell, Code, Details, Heading, Paragraph, Table, Title, cells
from ropewalk.chart import Chart, Series, TileGrid
from ropewalk.errors import printable
from ropewalk.outputs import UNSIGNED
from ropewalk.reports.page.html import asset, values_of
from ropewalk.reports.page.markup import Markup, tag
from ropewalk.reports.page.svg import HEIGHT, LEFT, WIDTH, chart, described, swatch

_MARGIN, _HEAD, _ROW = 12, 28, 18
"""Units around a picture, above it for its title, and for a row of its legend."""
_SHOWN = 400
"""The width of a picture in pixels: two fit next to each other."""
_BOLD = "font: bold 13px system-ui, sans-serif"

_SPECIAL = re.compile(r"[\\`*_\[\]<>&~$]|(?<=:)/(?=/)")
_BEGINS = re.compile(r"^(?:(?=[-+#])|(\d+)(?=[.)]))")
"""What would begin a list or a heading."""


def escaped(text: str) -> str:
    """A text on one line, in which nothing is markup."""
    return _SPECIAL.sub(r"\\\g<0>", _on_one_line(text))


def marked(text: str) -> str:
    """A text whose words between backticks are code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escaped(text)
    return "".join(_code(part) if i % 2 else escaped(part) for i, part in enumerate(parts))


def _code(text: str) -> str:
    line = _on_one_line(text)
    return f"`{line}`" if line.strip() else ""


def _on_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", printable(text, keep="\n"))


def _paragraph(text: str) -> str:
    return _BEGINS.sub(r"\1\\", marked(text.strip()))


def fenced(text: str) -> str:
    """Lines to paste, behind a fence that is longer than any in them."""
    fence = "`" * (1 + max(2, *map(len, ["", *re.findall("`+", text)])))
    return "\n".join((fence, printable(text, keep="\n"), fence))


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    lines = [[_cell(cell) for cell in row] for row in (cells(*columns), *rows)]
    lines.insert(1, ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: Cell) -> str:
    text = (
        f"[{escaped(cell.text)}]({quote(cell.link, errors='replace')})"
        if cell.link
        else marked(cell.text)
    )
    return f"{text} {escaped(cell.quiet)}".rstrip().replace("|", "\\|")


def folded(title: str, text: str) -> str:
    """A part that opens when asked to."""
    return f"<details>\n<summary>{escape(_on_one_line(title))}</summary>\n\n{text}\n\n</details>"


def picture(shown: Chart) -> str:
    """A chart with its title and legend as an SVG file; its paper is its own, light or dark."""
    wide, low = WIDTH + 2 * _MARGIN, HEIGHT + _HEAD + _ROW * len(shown.series) + _MARGIN
    legend = (
        tag(
            "g",
            tag("svg", _swatch(i, series), width=24, height=12),
            tag("text", series.label, x=32, y=10, class_="label"),
            transform=f"translate({LEFT} {HEIGHT + _HEAD + _ROW * i})",
        )
        for i, series in enumerate(shown.series)
    )
    inner = (
        tag("rect", width=wide, height=low, rx=6, fill="var(--paper)"),
        tag("text", shown.title, x=_MARGIN, y=18, fill="var(--ink)", style=_BOLD),
        tag("svg", chart(shown), y=_HEAD, x=_MARGIN, width=WIDTH, height=HEIGHT),
        tag("g", *legend, class_="chart"),
    )
    drawn = tag(
        "svg",
        tag("style", Markup(asset("style.css"))),
        *inner,
        xmlns="http://www.w3.org/2000/svg",
        width=_SHOWN,
        height=low * _SHOWN / wide,
        viewBox=f"0 0 {wide} {low}",
    )
    return f"{drawn}\n<!-- {UNSIGNED} -->\n"


def _swatch(index: int, series: Series) -> Markup:
    return swatch(index if series.look is None else series.look, main=series.main)


def markdown(blocks: Iterable[Block], pictures: dict[str, str], depth: int = 3) -> str:
    """Blocks as Markdown; `pictures` receives those that it refers to, by file name."""
    parts: list[str] = []
    for is_chart, group in groupby(blocks, lambda block: isinstance(block, Chart)):
        if is_chart:
            parts += _charts([each for each in group if isinstance(each, Chart)], pictures)
        else:
            parts += [_block(each, depth) for each in group]
    return "\n\n".join(filter(None, parts))


def _charts(shown: Sequence[Chart], pictures: dict[str, str]) -> Iterator[str]:
    """Pictures side by side, their captions, and their values for who cannot see them."""
    names = [f"{re.sub('[^a-z0-9]+', '-', each.title.lower()).strip('-')}.svg" for each in shown]
    pictures |= {name: picture(each) for name, each in zip(names, shown, strict=True)}
    texts = (escaped(f"{each.title}: {described(each)}") for each in shown)
    yield "\n".join(f"![{text}]({name})" for text, name in zip(texts, names, strict=True))
    yield from dict.fromkeys(_paragraph(each.caption) for each in shown)
    tables = (f"**{escaped(each.title)}**\n\n{table(*values_of(each))}" for each in shown)
    yield folded("Values", "\n\n".join(tables))


def _block(block: Block, depth: int) -> str:
    title = f"{'#' * depth} "
    match block:
        case Title():
            return f"<strong>{escaped(block.text)}</strong>{escaped(block.rest)}"
        case Heading():
            return title + escaped(block.text)
        case Paragraph():
            mark = {"verdict": "> ", "warning": "> ⚠️ "}.get(block.kind, "")
            return mark + _paragraph(block.text)
        case Code():
            return "\n\n".join(filter(None, (_paragraph(block.title), fenced(block.text))))
        case Table():
            head = title + escaped(block.title) if block.title else ""
            parts = (head, table(block.columns, block.rows), _paragraph(block.caption))
            return "\n\n".join(filter(None, parts))
        case Details():
            return folded("Details", markdown(block.blocks, {}, depth))
        case TileGrid():
            columns = (block.y_label, *block.columns)
            rows = [
                (Cell(name), *(Cell(f"{tile.value:.0%}" if tile else "–") for tile in line))
                for name, line in zip(block.rows, block.tiles, strict=True)
            ]
            return f"{title}{escaped(block.title)}\n\n{table(columns, rows)}"
        case Chart():
            raise AssertionError("charts are drawn together")
