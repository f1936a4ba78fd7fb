"""A page as one HTML document: nothing is loaded from elsewhere, and nothing needs a script.

The content-security policy allows one style and one script, by their hashes. Whatever a model's
name or a document may hold, no other script runs. The script sorts tables and copies commands, and
does nothing else.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from io import StringIO
from itertools import islice, takewhile
from pathlib import Path
from urllib.parse import quote

from ropewalk.blocks import (
    Block,
    Cell,
    Code,
    Details,
    Heading,
    KeyFigure,
    Page,
    Paragraph,
    Section,
    Table,
    Title,
)
from ropewalk.chart import Axis, Chart, Mark, TileGrid, alike, words
from ropewalk.outputs import UNSIGNED, signed
from ropewalk.reports.page.markup import Markup, joined, marked, tag
from ropewalk.reports.page.svg import chart, has_names, swatch, tiles

GENERATOR = "ropewalk report"
NARROW = 5
"""The columns of a table that fits next to a chart, and on a phone."""


def is_page(path: Path) -> bool:
    """True if a file is a page that `document` made."""
    with path.open("rb") as file:
        return f'name="generator" content="{GENERATOR} '.encode() in file.read(4096)


def document(page: Page) -> bytes:
    """The whole document, with a checksum of its own content, as all that ropewalk writes."""
    page = _alike(page)
    style, script = asset("style.css"), asset("page.js")
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
            tag("p", " · ".join(page.folded), class_="printed") if page.folded else None,
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
    remarks = (joined(tag("strong", f"{name}: "), marked(remark)) for name, remark in page.remarks)
    reasons = [*remarks, *map(marked, page.reasons)]
    box = (
        tag("p", page.word, class_="word") if page.word else None,
        tag("div", *map(_figure, page.figures), class_="figures") if page.figures else None,
        *(tag("p", marked(line)) for line in page.verdict.split("\n")),
        tag("p", tag("strong", "What to do: "), marked(page.to_do.title)) if page.to_do else None,
    )
    pasted = [page.to_do._replace(title="")] if page.to_do and page.to_do.text else []
    return tag(
        "header",
        tag("h1", page.title),
        tag("p", " · ".join(page.facts), class_="caption") if page.facts else None,
        tag(
            "div",
            tag("div", *box, class_="verdict", data_word=page.word),
            *_drawn(page.evidence[:1]),
            class_="top",
        ),
        *_drawn([*pasted, *page.evidence[1:]]),
        tag("ul", *(tag("li", reason) for reason in reasons), class_="reasons"),
        missing if page.missing else None,
    )


def _figure(figure: KeyFigure) -> Markup:
    ends = tag("small", figure.ends) if figure.ends else None
    return tag("p", tag("strong", figure.value), tag("span", figure.label), ends)


def _alike(page: Page) -> Page:
    """The page with one look for each subject in all of its charts."""
    blocks = iter(alike([*page.evidence, *(b for each in page.sections for b in each.blocks)]))
    return page._replace(
        evidence=tuple(islice(blocks, len(page.evidence))),
        sections=tuple(
            each._replace(blocks=tuple(islice(blocks, len(each.blocks)))) for each in page.sections
        ),
    )


def _contents(page: Page) -> Markup:
    items = (
        tag("li", tag("a", section.title, href=f"#part{i}"))
        for i, section in enumerate(page.sections)
    )
    return tag("nav", tag("ul", *items), aria_label="Contents")


def _section(index: int, section: Section) -> Markup:
    return tag("section", tag("h2", section.title, id_=f"part{index}"), *_drawn(section.blocks))


def _drawn(shown: Sequence[Block]) -> list[Markup]:
    """Blocks as HTML: charts next to each other, and a caption that all of them have below; a
    narrow table next to the one chart before it."""
    parts: list[Markup] = []
    waiting = [*shown]
    while waiting:
        charts = [*takewhile(lambda block: isinstance(block, Chart | TileGrid), waiting)]
        waiting = waiting[len(charts) :]
        captions = {b.caption for b in charts if isinstance(b, Chart | TileGrid)}
        once = captions.pop() if len(charts) > 1 and len(captions) == 1 else ""
        drawn = [block_of(b._replace(caption="") if once else b) for b in charts]  # type: ignore[call-arg]
        if len(charts) == 1 and waiting and _is_narrow(waiting[0]):
            drawn.append(tag("div", block_of(waiting.pop(0))))
        parts += [tag("div", *drawn, class_="charts")] if any(drawn) else []
        parts += [tag("p", marked(once), class_="caption")] if once else []
        others = [*takewhile(lambda block: not isinstance(block, Chart | TileGrid), waiting)]
        waiting = waiting[len(others) :]
        parts += _with_cards(others)
    return parts


def _is_narrow(block: Block) -> bool:
    return isinstance(block, Table) and len(block.columns) <= NARROW


def _with_cards(blocks: Sequence[Block]) -> list[Markup]:
    """Blocks as HTML: lines to paste next to each other, each with the paragraphs below it."""
    parts: list[Markup] = []
    cards: list[Markup] = []
    for block in blocks:
        if isinstance(block, Code):
            cards.append(block_of(block))
        elif cards and isinstance(block, Paragraph):
            cards[-1] = joined(cards[-1], block_of(block))
        else:
            parts += [*_grid(cards), block_of(block)]
            cards = []
    return [*parts, *_grid(cards)]


def _grid(cards: Sequence[Markup]) -> list[Markup]:
    return [tag("div", *(tag("div", each) for each in cards), class_="cards")] if cards else []


def block_of(block: Block) -> Markup:
    """One block as HTML."""
    match block:
        case Title():
            return tag("p", tag("strong", block.text), block.rest)
        case Heading():
            return tag("h3", block.text)
        case Details():
            return tag("details", tag("summary", block.title), *map(block_of, block.blocks))
        case Chart() if len(block.places) < 3:  # a table says more than a line of two points
            table = Table(block.title, *values_of(block), block.caption)
            return tag("figure", block_of(table)) if block.places else Markup("")
        case Chart():
            return tag(
                "figure",
                tag("h3", block.title),
                chart(block),
                None if has_names(block) else _legend(block),
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
            # On a phone, a line that wraps goes on further to the right.
            lines = (tag("span", line) for line in StringIO(block.text))
            pasted = tag("pre", tag("code", *lines), tabindex="0") if block.text else None
            return joined(tag("h3", block.title) if block.title else None, pasted)


_CLASSES = {"plain": None, "quiet": "caption"}


def _legend(block: Chart) -> Markup:
    items = (
        tag(
            "li",
            swatch(i if series.look is None else series.look, main=series.main),
            tag("strong" if series.main else "span", series.label),
        )
        for i, series in enumerate(block.series)
    )
    return tag("ul", *items, class_="legend")


def values_of(block: Chart) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """All that a chart draws, as the columns and rows of a table."""
    columns = [{mark.x: mark for mark in series.marks} for series in block.series]
    rows = tuple(
        (Cell(block.x.text(x), x), *(_value(at.get(x), block.y) for at in columns))
        for x in block.places
    )
    return (block.x.label, *(series.label for series in block.series)), rows


def _value(mark: Mark | None, axis: Axis) -> Cell:
    if mark is None:
        return Cell("–")
    value = axis.text(mark.y)
    return Cell(value, mark.y, quiet=words(mark, axis).removeprefix(value).strip())


def _cell(cell: Cell, name: str) -> Markup:
    shown = tag("a", cell.text, href=quote(cell.link)) if cell.link else marked(cell.text)
    quiet = joined(*(tag("small", f" {line}") for line in cell.quiet.split("\n") if line))
    kind = "number" if cell.key is not None or cell.text == "–" else None
    return tag("td", shown, quiet, data_key=cell.key, data_name=name, class_=kind)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Markup:
    numbers = [{row[i].key for row in rows if row[i].key is not None} for i in range(len(columns))]
    kinds = ["number" if keys else None for keys in numbers]
    heads = (
        tag("th", name, scope="col", class_=kind) for name, kind in zip(columns, kinds, strict=True)
    )
    head = tag("thead", tag("tr", *heads))
    body = tag("tbody", *(tag("tr", *map(_cell, row, columns)) for row in rows))
    kind = "wide" if len(columns) > NARROW else None  # on a phone, each row is a list
    return tag("div", tag("table", head, body, class_=kind), class_="scroll", tabindex="0")
