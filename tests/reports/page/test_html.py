"""A page loads nothing, runs no script but its own, and shows any text as text."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.blocks import Code, Page, Paragraph, Section
from ropewalk.chart import Axis, Chart, Mark, Series
from ropewalk.outputs import is_ours
from ropewalk.reports.page.html import document
from ropewalk.reports.page.markup import Markup, marked, tag, text
from tests.reports.page.pages import largest, page_of
from tests.reports.page.payloads import PAYLOADS

OURS = {
    *("html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "p", "ul"),
    *("li", "nav", "a", "main", "section", "figure", "figcaption", "div", "svg", "path", "text"),
    *("g", "desc", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre"),
    *("code", "strong", "small", "span", "footer", "script"),
}
FITTED = {"textlength", "lengthadjust"}
"""Attributes of a label that is too long for its side."""


class Read(HTMLParser):
    """Elements, attributes and texts, as a parser of HTML finds them."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(content.decode())

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attrs)))
        if name != "meta":
            self.open.append(name)

    def handle_startendtag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attrs)))

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def test_there_are_sixty_hostile_texts() -> None:
    assert len(set(PAYLOADS)) >= 60


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_hostile_text_is_text_wherever_it_stands(payload: str) -> None:
    """Two backticks make code of the words between them, and nothing else makes an element."""
    read = Read(document(page_of([payload])))
    usual = "a harmless text" if payload.count("`") != 2 else "`a harmless` text"
    usual += "\n" + "." * (not payload.endswith("\n")) if "\n" in payload else ""
    harmless = Read(document(page_of([usual])))
    assert [name for name, _ in read.elements] == [name for name, _ in harmless.elements]
    one, other = ([set(own) - FITTED for _, own in page.elements] for page in (read, harmless))
    assert one == other
    assert not read.open
    for kind in ("script", "style"):
        assert read.texts[kind] == harmless.texts[kind]


@given(st.text(max_size=60))
def test_what_is_escaped_is_read_back(value: str) -> None:
    (told,) = Read(f"<p>{text(value)}</p>".encode()).texts.get("p", [""])
    visible = value.replace("\n", "")
    if visible.isprintable():
        assert told == value


def test_words_between_backticks_are_code_and_escaped() -> None:
    assert marked("run `a <b>` now") == "run <code>a &lt;b&gt;</code> now"
    assert marked("one ` alone") == "one ` alone"


def test_only_markup_is_not_escaped() -> None:
    assert tag("p", "<b>", Markup("<i>x</i>")) == "<p>&lt;b&gt;<i>x</i></p>"


def test_elements_and_attributes_are_those_we_know() -> None:
    read = Read(document(page_of(["a"])))
    assert {name for name, _ in read.elements} <= OURS
    for name, attributes in read.elements:
        for key, value in attributes.items():
            assert not key.startswith("on"), (name, key)
            assert key not in ("src", "style", "action"), (name, key)
            if key == "href":
                assert (value or "").startswith("#part")


def test_the_policy_allows_the_page_s_own_style_and_script_alone() -> None:
    read = Read(document(page_of(["a"])))
    (policy,) = (
        own["content"]
        for name, own in read.elements
        if name == "meta" and own.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert allowed.keys() == {"default-src", "style-src", "script-src"}
    assert allowed["default-src"] == "'none'"
    for kind in ("style", "script"):
        digest = hashlib.sha256("".join(read.texts[kind]).encode()).digest()
        assert allowed[f"{kind}-src"] == f"'sha256-{b64encode(digest).decode()}'"


def test_the_largest_page_can_be_mailed() -> None:
    assert len(document(largest())) < 2 * 2**20


def test_a_page_is_known_as_ours_until_somebody_edits_it(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(document(page_of(["a"])))
    assert is_ours(file)
    file.write_bytes(file.read_bytes().replace(b"<h1>a", b"<h1>b"))
    assert not is_ours(file)


def chart_at(*places: float) -> Chart:
    marks = tuple(Mark(place, 0.5, 0.25, 0.75) for place in places)
    return Chart(
        "passkey", Axis("length"), Axis("right", shown="percent"), (Series("yarn", marks),)
    )


def test_a_chart_of_two_places_is_a_table_and_one_of_none_is_nothing() -> None:
    for places, drawn, told in (((1, 2, 3), 1, True), ((1, 2), 0, True), ((), 0, False)):
        read = Read(document(Page("p", "v", (), (Section("s", (chart_at(*places),)),))))
        frames = [own for name, own in read.elements if name == "svg" and own.get("role") == "img"]
        assert len(frames) == drawn
        assert ("50%" in read.texts.get("td", ())) is told
        assert (" (25 to 75%)" in read.texts.get("small", ())) is told
        assert ("passkey" in read.texts.get("h3", ())) is told


def test_the_top_holds_the_word_its_price_the_command_and_the_evidence() -> None:
    to_do, figures = Code("use it.", "serve a"), (chart_at(1, 2),)
    page = Page(
        *("p", "94% of facts\n2% more", (), ()), word="works, at a price", to_do=to_do,
        evidence=(*figures, Code("", "settings")), remarks=(("How sure", "Not very."),),
    )  # fmt: skip
    box = document(page).decode().split('<div class="verdict"')[1].split("<nav")[0]
    told = (
        *(">works, at a price</p>", "<p>94% of facts</p>", "<p>2% more</p>", "use it."),
        *("<table>", "<code><span>serve a</span></code>", "<code><span>settings</span></code>"),
        "<strong>How sure: </strong>Not very.",
    )
    assert [box.count(part) for part in told] == [1] * 8
    assert page.told == "works, at a price: 94% of facts 2% more"
    assert sorted(told, key=box.index) == list(told), "in this order"


def test_a_method_has_one_colour_in_all_charts_of_a_page() -> None:
    """Whatever its label and its place in each."""
    marks = tuple(Mark(n, 0.5) for n in range(3))
    ntk = Series("ntk", marks, subject="ntk")
    first = (Series("yarn (exported)", marks, subject="yarn"), ntk)
    second = (Series("linear", marks, subject="linear"), Series("yarn", marks, subject="yarn"))
    charts = [Chart("c", Axis("x"), Axis("y"), series) for series in (first, second)]
    page = Page("p", "v", (), (Section("s", (charts[1],)),), evidence=(charts[0],))
    legends = re.findall(r'class="mark (s\d)"/></svg><span>(\w+)', document(page).decode())
    assert [*dict.fromkeys(legends)] == [("s0", "yarn"), ("s1", "ntk"), ("s2", "linear")]


def test_lines_to_paste_stand_next_to_each_other_each_with_its_remark() -> None:
    blocks = (Paragraph("first"), Code("one", "1"), Paragraph("its remark"), Code("two", "2"))
    drawn = document(Page("p", "v", (), (Section("s", blocks),))).decode()
    (cards,) = re.findall(r'<div class="cards">(.*)</div></section>', drawn)
    one, two = re.findall(r"<div>(.*?)</div>", cards)
    assert "its remark" in one
    assert "two" in two
    assert "first" not in cards


def test_the_same_page_has_the_same_bytes() -> None:
    assert document(page_of(["a"])) == document(page_of(["a"]))
