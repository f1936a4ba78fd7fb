"""`ropewalk precision` as a user meets it; tests/api/test_precision.py holds it to its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropewalk.cli import command_line
from ropewalk.errors import RopewalkError

SMALL = ("--quick", "--arms", "fp32,bf16", "--length", "64", "--sequences", "2")


def precision(model: Path, *arguments: object) -> str:
    words = ["precision", str(model), *map(str, arguments)]
    result = CliRunner().invoke(command_line(["precision"]), words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_explains_each_arm_and_the_diagnosis_follows(model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shown = precision(model, *SMALL, "--shifts", "0,16", "--run", run, "--details")
    assert "on cpu, 2 sequences of 64 tokens, a full forward pass per shift" in shown
    assert "bf16: as FlashAttention" in shown
    assert "- as given: no trap" in shown
    assert f"figures are in {run}" in shown
    assert any((run / "figures").glob("*.png"))


def test_the_verdict_is_a_few_lines(model: Path) -> None:
    shown = precision(model, *SMALL, "--shifts", "0,16")
    assert len(shown.splitlines()) <= 7
    assert "- bf16: a shift by" in shown
    assert "- as given: no trap" in shown
    assert "first token" not in shown
    assert shown.endswith("(--details shows each number format, and all that was found)\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--arms", "fp23"), "fp23"),
        (("--arms", "fp32", "--length", "9M"), "9437184|shorter|longer|tokens"),
        (("--shifts", "16,32"), "must contain 0"),
        (("--shifts", "a,b"), "--shifts = 'a': must be a whole number"),
        (("--arms", "tf32", "--device", "cpu"), "no TF32 units"),
        (("--sequences", "0"), "must be positive"),
        (("--length", "128", "--lengths", "256"), "only 128 tokens"),
    ],
)
def test_bad_input_is_refused(model: Path, arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(RopewalkError, match=text) as caught:
        precision(model, "--quick", *arguments)
    assert caught.value.exit_status == 2
