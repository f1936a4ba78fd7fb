"""Blocks as Markdown: texts from elsewhere are text there, whatever renders it."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from ropewalk.blocks import Block, Cell, Code, Details, Heading, Paragraph, Table, Title
from ropewalk.chart import Axis, Chart, Mark, Series, Tile, TileGrid
from ropewalk.outputs import is_signed, signed
from ropewalk.reports.markdown import markdown, picture
from tests.reports.page.payloads import PAYLOADS

HOSTILE = [
    *PAYLOADS,
    "# a heading",
    "1. a list",
    "- a list",
    "![a picture](http://a.test/x.png)",
    "[a link](javascript:alert(1)) <http://a.test>",
    "a | b\n--- | ---\n| c |",
    "``` \n```\n<script>x</script>",
    "*a* _b_ ~~c~~ `d <b>` e``",
    "</details><img src=x>",
    "\\\\| \\\\\\\\| \\\\",
    "&lt;script&gt; \\* \u202e $$x$$",
]
OURS = {
    *("p", "strong", "h3", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "pre"),
    *("code", "details", "summary", "img", "a"),
}


class Seen(HTMLParser):
    """The elements of a rendered page, and its text."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def chart(name: str) -> Chart:
    marks = (Mark(512, 0.9, 0.8, 0.95, name), Mark(2048, 0.5))
    return Chart(
        name, Axis(name, "log2", "length"), Axis(name), (Series(name, marks),), caption=name
    )


def blocks_of(text: str) -> list[Block]:
    table = Table(text, (text, "b"), ((Cell(text, link=text), Cell("x", quiet=text)),), text)
    return [
        Title(text, text),
        Heading(text),
        Paragraph(text, "verdict"),
        Paragraph(text, "warning"),
        Paragraph(text),
        Code(text, text),
        table,
        Details((table, Paragraph(text))),
        Details((table,)),
        TileGrid(text, text, text, (text,), (text,), ((Tile(0.5, text),),)),
        chart(text),
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_from_elsewhere_is_text(text: str) -> None:
    pictures: dict[str, str] = {}
    page = markdown(blocks_of(text), pictures)
    plain = Seen(markdown(blocks_of("plain"), {}))
    seen = Seen(page)
    assert {tag for tag, _ in seen.elements} <= OURS
    usual = [tag for tag, _ in plain.elements if tag != "code"]
    assert [tag for tag, _ in seen.elements if tag != "code"] == usual
    for tag, attributes in seen.elements:
        if tag == "img":
            assert attributes["src"] in pictures
        assert not any(name.startswith("on") for name in attributes)
        assert not (attributes.get("href") or "").startswith("javascript:")
    for drawn in pictures.values():
        root = ElementTree.fromstring(drawn)
        assert {own.tag.rpartition("}")[2] for own in root.iter()} <= {
            *("svg", "style", "rect", "text", "g", "path", "title", "desc")
        }


@pytest.mark.parametrize("text", ["a_b*c", "1. x", "x | y <b> & [z]", "a `code_x|y` b", "#1 +2 -3"])
def test_a_text_reads_as_it_was_written(text: str) -> None:
    assert Seen(markdown([Paragraph(text)], {})).text.strip() == text.replace("`", "")
    cells = Seen(markdown([Table("", ("a",), ((Cell(text),),))], {})).text.split("\n")
    assert text.replace("`", "") in cells


def test_lines_to_paste_are_copied_whole() -> None:
    lines = "printf '%s\\n' '```' > f\n\n    \"$x\" && y"
    assert Seen(markdown([Code("", lines)], {})).text.rstrip() == lines


def test_charts_of_a_row_share_a_caption_and_are_files() -> None:
    pictures: dict[str, str] = {}
    both = [chart("first")._replace(caption="once"), chart("Second one")._replace(caption="once")]
    page = markdown(both, pictures)
    assert list(pictures) == ["first.svg", "second-one.svg"]
    assert page.count("once") == 1
    assert "90% " not in page
    assert "0.9 (0.8 to 0.95)" in page
    assert is_signed(signed(pictures["first.svg"].encode()))
    assert "prefers-color-scheme: dark" in picture(both[0])
