from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ropewalk.cli import command_line
from ropewalk.theory.asymptote import asymptotic_base
from ropewalk.theory.bound import infima, safe_bases


def bound(*arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(command_line(), ["bound", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_json_holds_both_bounds_and_what_was_published() -> None:
    value = bound("1k", "2048")
    assert value["head_dim"] == 128
    least, safe = infima(128, [1024])[0], safe_bases(128, [1024])[0]
    assert [row["length"] for row in value["rows"]] == [1024, 2048]
    row = value["rows"][0]
    assert row["infimum"] == pytest.approx(least.value, rel=1e-9)
    assert row["infimum_low"] <= row["infimum"] <= row["infimum_high"]
    assert row["safe"] == pytest.approx(safe.value, rel=1e-9)
    assert row["safe_certified"] is True
    assert row["asymptotic"] == asymptotic_base(1024)
    assert row["published"] == {"men2024": 4.3e3, "su2024": 4.3e3}


def test_a_head_and_length_of_no_table() -> None:
    row = bound("700", "--head-dim", 48)["rows"][0]
    assert row["infimum"] < row["safe"]
    assert row["published"] == {"men2024": None, "su2024": None}


@pytest.mark.parametrize(("only", "missing"), [("infimum", "safe"), ("safe", "infimum")])
def test_only_leaves_the_other_out(only: str, missing: str) -> None:
    row = bound("512", "--only", only)["rows"][0]
    assert row[missing] is None
    assert row[only] > 0


def test_table_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "bound.svg"
    result = CliRunner().invoke(command_line(), ["bound", "1k", "8k", "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    assert "4,293.437569" in result.stdout
    assert "83,763.84" in result.stdout
    assert "Llama 3" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["1"], "length = 1"),
        (["17M"], "length = 17825792"),
        (["8k", "--head-dim", "7"], "head_dim = 7"),
        (["8k", "--head-dim", "0"], "head_dim = 0"),
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
    """Ctrl-C in the middle of a minute's work: at once, silently, with the usual status."""
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
    assert (out, err) == ("", "")
