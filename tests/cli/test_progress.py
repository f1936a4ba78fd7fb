from __future__ import annotations

import pytest

from ropewalk.cli import progress
from ropewalk.cli.progress import progress_bar
from ropewalk.progress import Status


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
    run_bar()
    assert capsys.readouterr() == ("", "")  # no terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    run_bar()
    out, err = capsys.readouterr()
    assert out == ""
    assert "[working]" in err  # markup in a stage's name stays text
    assert "best 2" in err
