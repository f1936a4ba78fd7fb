"""A page as one HTML document: nothing is loaded from elsewhere, and nothing needs a script.

The content-security policy allows one style and one script, by their hashes. Whatever a model's
name or a document may hold, no other script runs. The script sorts tables, and does nothing else.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from ropewalk.blocks import (
    Block,
    Cell,
    Code,
    Details,
    Heading,
    Page,
    Paragraph,
    Section,
    Table,
    Title,
)
from ropewalk.chart import Chart, TileGrid, words
from ropewalk.outputs import UNSIGNED, signed
from ropewalk.reports.page.markup import Markup, joined, marked, tag
from ropewalk.reports.page.svg import chart, swatch, tiles

GENERATOR = "ropewalk report"


def is_page(path: Path) -> bool:
    """True if a file is a page that `document` made."""
    with path.open("rb") as file:
        return f'name="generator" content="{GENERATOR} '.encode() in file.read(4096)


def document(page: Page) -> bytes:
    """The whole document, with a checksum of its own content, as all that ropewalk writes."""
    style, script = asset("style.css"), asset("sort.js")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="generator", content=f"{GENERATOR} {UNSIGNED}"),
        tag("title", page.title),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        _header(page),
        _contents(page),
        tag("main", *(_section(i, each) for i, each in enumerate(page.sections))),
        tag(
            "footer",
            *(tag("p", marked(note)) for note in page.notes),
            tag("details", tag("summary", "Configuration and checksums"), *folded)
            if (folded := [tag("p", note) for note in page.folded])
            else None,
        ),
        tag("script", Markup(script)),
    )
    return signed(f"<!doctype html>\n{tag('html', head, body, lang='en')}\n".encode())


def asset(name: str) -> str:
    return (files("ropewalk.reports.page") / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{b64encode(digest).decode()}'"


def _header(page: Page) -> Markup:
    missing = tag("p", f"Still missing: {'; '.join(page.missing)}.", class_="warning")
    return tag(
        "header",
        tag("h1", page.title),
        tag("p", " · ".join(page.facts), class_="caption") if page.facts else None,
        tag(
            "div",
            tag("p", tag("strong", page.word)) if page.word else None,
            tag("p", marked(page.verdict)),
            tag("p", "What to do: ", marked(page.advice)) if page.advice else None,
            tag("pre", tag("code", page.command), tabindex="0") if page.command else None,
            class_="verdict",
        ),
        tag("ul", *(tag("li", marked(reason)) for reason in page.reasons), class_="reasons")
        if page.reasons
        else None,
        missing if page.missing else None,
    )


def _contents(page: Page) -> Markup:
    items = (
        tag("li", tag("a", section.title, href=f"#part{i}"))
        for i, section in enumerate(page.sections)
    )
    return tag("nav", tag("ul", *items), aria_label="Contents")


def _section(index: int, section: Section) -> Markup:
    parts: list[Markup] = []
    for drawn, blocks in groupby(section.blocks, lambda block: isinstance(block, Chart | TileGrid)):
        own = [*blocks]
        if not drawn:
            parts += map(block_of, own)
            continue
        captions = {b.caption for b in own if isinstance(b, Chart | TileGrid)}
        once = captions.pop() if len(own) > 1 and len(captions) == 1 else ""  # below all of them
        shown = [block_of(b._replace(caption="") if once else b) for b in own]  # type: ignore[call-arg]
        parts.append(tag("div", *shown, class_="charts"))
        parts += [tag("p", marked(once), class_="caption")] if once else []
    return tag("section", tag("h2", section.title, id_=f"part{index}"), *parts)


def block_of(block: Block) -> Markup:
    """One block as HTML."""
    match block:
        case Title():
            return tag("p", tag("strong", block.text), block.rest)
        case Heading():
            return tag("h3", block.text)
        case Details():
            return tag("details", tag("summary", "Details"), *map(block_of, block.blocks))
        case Chart() if len(block.places) < 2:  # a table says more than a picture of one place
            drawn = block.places and joined(tag("h3", block.title), _table(*values_of(block)))
            return drawn or Markup("")
        case Chart():
            return tag(
                "figure",
                tag("h3", block.title),
                chart(block),
                _legend(block),
                tag("figcaption", marked(block.caption)) if block.caption else None,
                tag("details", tag("summary", "Values"), _table(*values_of(block)))
                if len(block.places) <= 60  # not of a curve of a search or a training
                else None,
            )
        case TileGrid():
            caption = tag("figcaption", block.caption) if block.caption else None
            return tag("figure", tag("h3", block.title), tiles(block), caption)
        case Table():
            return joined(
                tag("h3", block.title) if block.title else None,
                _table(block.columns, block.rows),
                tag("p", marked(block.caption), class_="caption") if block.caption else None,
            )
        case Paragraph():
            return tag("p", marked(block.text), class_=_CLASSES.get(block.kind, block.kind))
        case Code():
            pasted = tag("pre", tag("code", block.text), tabindex="0")
            return joined(tag("h3", block.title) if block.title else None, pasted)


_CLASSES = {"plain": None, "quiet": "caption"}


def _legend(block: Chart) -> Markup | None:
    if not block.series:
        return None
    items = (
        tag(
            "li",
            swatch(i if series.look is None else series.look, main=series.main),
            tag("strong" if series.main else "span", series.label),
        )
        for i, series in enumerate(block.series)
    )
    return tag("ul", *items, class_="legend")


def values_of(block: Chart) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    """All that is drawn, as the columns and rows of a table."""
    own = [{mark.x: mark for mark in series.marks} for series in block.series]
    rows = [
        (
            Cell(block.x.text(x), x),
            *(Cell(words(at[x], block.y), at[x].y) if x in at else Cell("–") for at in own),
        )
        for x in block.places
    ]
    return (block.x.label, *(series.label for series in block.series)), rows


def _cell(cell: Cell, name: str) -> Markup:
    shown = tag("a", cell.text, href=quote(cell.link)) if cell.link else marked(cell.text)
    quiet = tag("small", f" {cell.quiet}") if cell.quiet else None
    return tag("td", shown, quiet, data_key=cell.key, data_name=name)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in columns)))
    body = tag("tbody", *(tag("tr", *map(_cell, row, columns)) for row in rows))
    kind = "wide" if len(columns) > 4 else None  # on a phone, each row is a list
    return tag("div", tag("table", head, body, class_=kind), class_="scroll", tabindex="0")
