from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropewalk.cli import command_line
from ropewalk.theory.bound import islands


def test_table_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "bound.svg"
    result = CliRunner().invoke(
        command_line(["bound"]), ["bound", "1k", "8k", "--plot", str(picture)]
    )
    assert result.exit_code == 0, result.output
    assert "4,293.437569" in result.stdout
    assert "83,763.84" in result.stdout
    assert "Llama 3" in picture.read_text(encoding="utf-8")


def bound(*arguments: str) -> str:
    result = CliRunner().invoke(command_line(["bound"]), ["bound", *arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


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
        (["17M"], "length = 17825792"),
        (["8k", "--head-dim", "7"], "--head-dim = 7"),
        (["8k", "--head-dim", "0"], "--head-dim = 0"),
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
    command = [
        sys.executable,
        "-m",
        "ropewalk",
        "bound",
        "1M",
        "--head-dim",
        "72",
        "--only",
        "safe",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        time.sleep(10)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert (out, err) == ("", "interrupted\n")
