from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import ropewalk as rw
from ropewalk import progress
from ropewalk.cli.declared import Call
from ropewalk.progress import Notice, Progress, Status, of_a_command, shown


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick work is shown too."""
    monkeypatch.setattr(progress, "PATIENCE", -1.0)


def run_bar() -> None:
    with of_a_command("") as show:
        for step in range(3):
            show(Status("[working]", step / 2, f"best {step}"))


def test_quick_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run_bar()
    assert capsys.readouterr() == ("", "")


def test_slow_work_shows_a_bar_on_a_terminal(
    at_once: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with of_a_command("") as show:
        show(Status("search", 0.25, "best 1.5"))
        told = ""
        while told.count("\n") < 2:  # also while nothing new is known
            told += capsys.readouterr().err
    first = told.splitlines()[0]
    assert first == "search: 25% after 0:00:00, best 1.5"
    assert capsys.readouterr().out == ""


def test_work_that_has_not_reported_yet_is_not_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.01)
    with of_a_command("fingerprint"):
        told = ""
        while not told:
            told = capsys.readouterr().err
    assert told.startswith("fingerprint: 0% after 0:00:0")


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
    assert progress.line(Status("train", 0.5), 3725, 3725) == (
        "train: 50% after 1:02:05, about 1:02:05 left"
    )
    assert (
        progress.line(Status("export", 0.0, "writing"), 61, None)
        == "export: 0% after 0:01:01, writing"
    )


@pytest.mark.parametrize("resumed", [0.0, 0.08, 0.5])
def test_the_time_left_is_that_of_work_of_this_session(
    resumed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that goes on reports at once what was done before; then a percent takes a minute."""
    now = 0.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    pace = progress._Pace("howlong")
    for known in range(5):
        pace.take(Status("reading", resumed * (known + 1) / 5))
    now = 45.0
    assert "left" not in pace.line()
    for step in range(1, 21):
        now = 60.0 * step
        pace.take(Status("reading", resumed + step / 100))
    left = pace.left()
    assert left is not None
    assert left == pytest.approx(60 * 100 * (1 - resumed - 0.2))
    assert f"about {progress._clock(left)} left" in pace.line()


def test_a_call_from_python_shows_a_bar_where_someone_looks_on(
    at_once: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rw.plan("llama-2-7b", "32k")
    assert capsys.readouterr() == ("", ""), "standard error is no terminal"
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    rw.plan("llama-2-7b", "32k", progress=None)
    assert screen.getvalue() == ""
    rw.plan("llama-2-7b", "32k")
    assert "comparing" in screen.getvalue()
    assert screen.getvalue().count("\x1b[?25l") == 1, "the cursor is hidden once"
    assert capsys.readouterr().out == ""


def test_what_is_printed_under_a_bar_stays_on_standard_output(
    at_once: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Screen())
    with progress.of_a_call(shown) as show:
        show(Status("search", 0.5))
        print("the result")
    assert capsys.readouterr().out == "the result\n"


def test_a_call_in_a_notebook_draws_in_its_cell(
    at_once: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells: list[dict[str, str]] = []

    def display(data: dict[str, str], **asked: bool) -> Any:
        assert asked == {"raw": True, "display_id": True}
        return SimpleNamespace(update=lambda data, raw: cells.append(data))

    jupyter, drawing = ModuleType("IPython"), ModuleType("IPython.display")
    jupyter.get_ipython = lambda: SimpleNamespace(kernel=0)  # type: ignore[attr-defined]
    drawing.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", jupyter)
    monkeypatch.setitem(sys.modules, "IPython.display", drawing)
    rw.plan("llama-2-7b", "32k")
    first, *_, last = cells
    assert "<progress value=0." in first["text/html"]
    assert first["text/plain"].startswith("comparing: ")
    assert last == {"text/plain": "", "text/html": ""}
    assert capsys.readouterr() == ("", "")
