from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ropewalk.theory.bound import islands
from tests.cli.calling import ropewalk


def test_table_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "bound.svg"
    shown = ropewalk("bound", "1k", "8k", "--plot", picture)
    assert "4,293.437569" in shown
    assert "83,763.84" in shown
    assert "Llama 3" in picture.read_text(encoding="utf-8")


def bound(*arguments: str) -> str:
    return " ".join(ropewalk("bound", *arguments).split())


def test_what_is_proven_is_said_with_its_domain_and_assumptions() -> None:
    shown = bound("1k", "--head-dim", "4")
    assert "infimum: no base from 1 to it works" in shown
    assert "no smaller base" not in shown
    assert "within a relative 7e-06 of it does" in shown, "rounding widened this one"
    assert "proven, assuming: double precision" in shown


def test_islands_are_printed_with_both_edges() -> None:
    shown = bound("1k", "--islands")
    assert "Islands of bases that work for 1k" in shown
    assert shown.count("1 + ") == len(islands(128, 1024).edges)
    assert "every base on an island works" in shown
    assert "no island" in bound("1k", "--rotary-dim", "64", "--islands")
    assert "(infimum 1: every base from 1 on works)" in bound("1k", "--rotary-dim", "64")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["1"], "length = 1"),
        (["8k", "--head-dim", "7"], "--head-dim = 7"),
        (["8k", "--rotary-dim", "7"], "--rotary-dim = 7"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments: list[str], key: str) -> None:
    command = [sys.executable, "-m", "ropewalk", "bound", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {key}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_an_interrupt_leaves_no_mess() -> None:
    """Ctrl-C in the middle of a minute's work: at once, in one word, with the usual status."""
    words = ("bound", "1M", "--head-dim", "72", "--only", "safe")
    command = [sys.executable, "-m", "ropewalk", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        time.sleep(10)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert (out, err) == ("", "interrupted\n")
