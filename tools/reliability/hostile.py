"""Sixty hostile texts as names in plans, configs and folders: shown in a page, a card, a terminal.

The page is opened in Chromium, the card rendered from Markdown as a hub does, and what the command
writes is looked at byte by byte. Each must have the elements that a harmless name gives, and no
more.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

import ropewalk as rw
from ropewalk.__main__ import run
from ropewalk.exporting.manifest import Manifest
from ropewalk.reports.page.html import document
from tests.reports.page.pages import page_of
from tests.reports.page.payloads import PAYLOADS
from tools.reliability.row import CannotRun, Case, Row

TERMINAL = (
    "\x1b[2J\x1b[1;1H",
    "\x1b]0;HACKED\x07",
    "\x1b]8;;http://a.test\x1b\\a link\x1b]8;;\x1b\\",
    "\x9b31m",
    "\u202egpj.exe",
    "a\u2066b\u2069",
    "\r0 wrong",
    "\b\b\b\bOK",
    "a\u200bb\ufeff",
    "[bold red]x[/] [/nope] [link=http://a.test]y[/link]",
    "\ud83d\ude00 \U0001f600",
    "a\x00b",
)
HARMLESS = "a harmless name"
TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)


class Elements(HTMLParser):
    """Elements with the names of their attributes, and where links and pictures lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.places: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {key: value or "" for key, value in attrs}
        fitted = {"textlength", "lengthadjust"}  # of a label too long for its side
        self.found.append((tag, tuple(sorted(set(own) - fitted))))
        self.places += [own[key] for key in ("href", "src") if key in own]


def texts() -> list[str]:
    return [*TERMINAL, *PAYLOADS][:60]


def _commands(room: Path, text: str) -> str | None:
    """What five verbs write to the terminal for files that name things so."""
    name = text.encode(errors="ignore").decode()  # as no lone surrogate is in a file's name
    folder = room / ("".join(c for c in name if c not in "/\0")[:100].strip(".") or "x")
    folder.mkdir(exist_ok=True)
    config = json.loads((room / "model" / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": text, "_name_or_path": text}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    file = _named(room, text)
    model = str(room / "model")
    for words in (
        ["inspect", str(folder)],
        ["plan", str(folder / "config.json"), "--to", "512", "--method", text],
        ["verify", model, "--plan", str(file), "--no-run", "--runtime", "vllm"],
        ["export", model, "--plan", str(file), "--dry-run"],
        ["export", model, "--plan", str(file), "--dry-run", "--json"],
    ):
        status, out, told = _said(words)
        if status not in (0, 1, 2, 3) or "Traceback" in told:
            return f"status {status} of {words[0]} ({told[-300:]!r})"
        raw = [c for c in out + told if not c.isprintable() and c != "\n"]
        if raw:
            return f"{words[0]} writes {raw[0]!r} to the terminal"
    return None


def _named(room: Path, text: str) -> Path:
    """A plan whose model, and whose origin, are named by the text."""
    plan = json.loads((room / "plan.json").read_text(encoding="utf-8"))
    plan |= {"model": text, "provenance": {text[:40] or "a": text}}
    file = room / "named.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    return file


def _said(words: Sequence[str]) -> tuple[int, str, str]:
    out, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
        status = run(words)
    return status, out.getvalue(), told.getvalue()


def _card(room: Path, text: str) -> Elements | str:
    """The elements of the card of an export whose plan names its model so, or an error."""
    folder = room / "exported"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(room / "model", folder)
    shutil.copyfile(_named(room, text), folder / "plan.json")
    try:
        Manifest.of(folder, runtime="transformers").write(folder)
        made = rw.card(folder, overwrite=True)
    except rw.RopewalkError as error:
        return str(error)
    front, rest = Path(made.path).read_text(encoding="utf-8").split("\n---\n", 1)
    if len(front.splitlines()) > 12 or "HACKED" in front.replace(text, ""):
        return f"its front matter is {front[:200]!r}"
    return Elements(MarkdownIt("commonmark", {"html": True}).enable("table").render(rest))


def _page(room: Path, text: str) -> str | None:
    """The page of every kind of block with the text in it, as Chromium has it once scripts ran."""
    usual = HARMLESS if text.count("`") != 2 else "`a harmless` name"
    usual += "\n" + "." * (not text.endswith("\n")) if "\n" in text else ""
    usual_page, page = _opened(room, usual), _opened(room, text)
    if isinstance(page, str) or isinstance(usual_page, str):
        return str(page)
    if usual_page.found != page.found:
        return "the page has other elements than with a harmless name"
    outside = [place for place in page.places if not place.startswith("#")]
    return f"the page leads to {outside[0]!r}" if outside else None


@cache
def _opened(room: Path, name: str) -> Elements | str:
    """The elements of the page once its scripts ran, or what it does that it must not."""
    from tests.browser.test_report import CHROMIUM, browse, written

    if CHROMIUM is None:
        raise CannotRun("no Chromium, so pages were not opened")
    folder = room.parent / "page"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    file = written(folder, document(page_of([name])._replace(title="a title")))
    dom, console = browse(file, "--dump-dom", "--virtual-time-budget=1000")
    if console:
        return f"the page says {console[0][:200]} on the console"
    title = TITLE.search(dom)
    if title is None or title[1] != "a title":
        return f"the title became {title and title[1]!r}"
    return Elements(dom)


def _shown(room: Path, text: str) -> str | None:
    own = Path(shutil.copytree(room, room.parent / "own", dirs_exist_ok=True))
    said = _commands(own, text)
    if said:
        return said
    card, usual = _card(own, text), _card(own, HARMLESS)
    if isinstance(card, Elements) and isinstance(usual, Elements):
        if [tag for tag, _ in card.found if tag != "br"] != [tag for tag, _ in usual.found]:
            return "the card has other elements than with a harmless name"
        if card.places != usual.places:
            return "the card's links lead elsewhere"
    elif isinstance(card, str) and (not card.isprintable() or "front matter" in card):
        return f"no card: {card!r}"
    return _page(room, text)


def cases(room: Path, seed: int) -> Iterator[Case]:
    from tests.evaluation import tiny

    base = room / "base"
    base.mkdir()
    tiny.folder_of(tiny.model(), base / "model")
    plan = rw.plan(base / "model", "256", "yarn").plan
    (base / "plan.json").write_text(plan.dumps(), encoding="utf-8")
    with contextlib.suppress(CannotRun):
        _opened(base, HARMLESS)  # once, for all
    for text in texts():
        yield Case(ascii(text)[1:60], partial(_shown, base, text))


ROWS = (
    Row(
        "hostile",
        "hostile texts as names of models, methods and folders, in pages, cards and terminals",
        "inert: in Chromium, in rendered Markdown, in the bytes that the command writes",
        60,
        cases,
        seconds=120,
        sample=0,
    ),
)
