from __future__ import annotations

import pytest

from ropewalk.cli import progress
from ropewalk.cli.progress import progress_bar
from ropewalk.progress import Status


def run_bar() -> None:
    with progress_bar() as show:
        for stage in ("thinking", "working"):
            for step in range(3):
                show(Status(stage, step / 2, "so far so good"))


def test_quick_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run_bar()
    assert capsys.readouterr() == ("", "")


def test_slow_work_shows_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    run_bar()
    assert capsys.readouterr() == ("", "")  # no terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    run_bar()
    out, err = capsys.readouterr()
    assert out == ""
    assert "thinking" in err
    assert "working" in err
    assert "so far so good" in err
