"""No page holds an absolute path of the machine that made it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.blocks import Code, Page, Paragraph, Section
from ropewalk.reports.parts.places import names, shareable
from tests.evaluation import tiny

ABSOLUTE = re.compile(r"(?<![\w.:<])/(?:home|tmp|data|root)/")


def told(text: str, *runs: Path) -> str:
    blocks = (Paragraph(text), Code("code", text))
    page = shareable(Page(text, text, (text,), (Section(text, blocks),), (), (text,)), runs)
    seen = {page.title, page.verdict, *page.reasons, *page.notes, page.sections[0].title}
    seen |= {block.text for block in page.sections[0].blocks}  # type: ignore[union-attr]
    [said] = seen
    return said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Wrote /data/runs/mine/model for transformers.", "Wrote mine/model for transformers."),
        ("--run=/data/runs/mine --corpus /data/b/t.txt", "--run=mine --corpus …/t.txt"),
        ("from_pretrained('/data/runs/mine/model')", "from_pretrained('mine/model')"),
        ("open('/home/a b/c d/text.txt')", "open('…/text.txt')"),
        ("/data/runs/mine2: is another", "…/mine2: is another"),
        ("at /data/runs/mine.", "at mine."),
        ("FROM /data/runs/mine/model.gguf", "FROM ./mine/model.gguf"),
        ("runs/mine, 1/2, nats/token and/or https://a.b/c/d/e", None),
        ("FROM ./runs/mine/model.gguf", None),
        ("the server has no /v1/completions there", None),
    ],
)
def test_absolute_paths_are_shortened_and_nothing_else(text: str, said: str | None) -> None:
    assert told(text, Path("/data/runs/mine")) == (said or text)


def test_a_path_below_the_working_directory_is_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "my run"
    line = f"ropewalk extend --run '{run}' --corpus {tmp_path}/texts/a.txt"
    assert told(line, run) == "ropewalk extend --run 'runs/my run' --corpus texts/a.txt"


def test_the_working_directory_itself_may_be_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert names([Path()]) == ["."]
    assert told(f"--run {tmp_path}", Path()) == "--run ."


def test_runs_of_one_name_are_told_apart() -> None:
    assert names([Path("/data/a/run"), Path("/data/b/run")]) == ["a/run", "b/run"]
    assert names([Path("/data/a/one"), Path("/data/b/two")]) == ["one", "two"]
    assert names([Path("a/run"), Path("/data/b/run")]) == ["a/run", "run"]


def test_a_run_s_pages_hold_no_absolute_path(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = tmp_path / name / "run"
        text = tiny.documents()
        rw.evaluate(tiny.loaded(), lengths=[128], tasks=["kv"], samples=5, corpus=text, run=run)
    both = rw.report(tmp_path / "one/run", tmp_path / "two/run", out=tmp_path / "both.html")
    assert both.title == "one/run and two/run"
    for page in (tmp_path / "one/run/report.html", both.path):
        content = page.read_text()
        assert str(tmp_path) not in content
        assert not ABSOLUTE.search(content.partition("<body>")[2])
