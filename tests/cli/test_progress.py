from __future__ import annotations

import pytest

from ropewalk.cli import progress
from ropewalk.cli.declared import Call
from ropewalk.cli.progress import progress_bar
from ropewalk.progress import Notice, Progress, Status


def run_bar() -> None:
    with progress_bar() as show:
        for step in range(3):
            show(Status("[working]", step / 2, f"best {step}"))


def test_quick_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run_bar()
    assert capsys.readouterr() == ("", "")


def test_slow_work_shows_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    run_bar()
    out, err = capsys.readouterr()
    assert out == ""
    assert "[working]" in err  # markup in a stage's name stays text
    assert "best 2" in err


def test_slow_work_writes_lines_to_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.01)
    with progress_bar() as show:
        show(Status("search", 0.25, "best 1.5"))
        told = ""
        while told.count("\n") < 2:  # also while nothing new is known
            told += capsys.readouterr().err
    first = told.splitlines()[0]
    assert first == "search: 25% after 0:00:00, about 0:00:00 left, best 1.5"
    assert capsys.readouterr().out == ""


def test_work_that_has_not_reported_yet_is_not_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.01)
    with progress_bar("fingerprint"):
        told = ""
        while not told:
            told = capsys.readouterr().err
    assert told.startswith("fingerprint: 0% after 0:00:00")


def test_quiet_leaves_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    def verb(*, progress: Progress, notice: Notice) -> None:
        progress(Status("working", 0.5))
        notice("using the first 3 documents")
        notice("warning: this may be wrong")

    Call(verb, {})()
    assert "first 3 documents" in capsys.readouterr().err
    Call(verb, {}, quiet=True)()
    assert capsys.readouterr() == ("", "warning: this may be wrong\n")


def test_a_line_says_what_is_left() -> None:
    assert progress.line(Status("train", 0.5), 3725) == (
        "train: 50% after 1:02:05, about 1:02:05 left"
    )
    assert (
        progress.line(Status("export", 0.0, "writing"), 61) == "export: 0% after 0:01:01, writing"
    )
    assert progress.line(Status("export", 1.0), 61) == "export: 100% after 0:01:01"
