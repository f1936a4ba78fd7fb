"""`ropewalk precision` as a user meets it; tests/api/test_precision.py holds it to its numbers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from ropewalk.errors import InvalidValue
from tests.cli.calling import ropewalk

SMALL = ("--quick", "--arms", "fp32,bf16", "--length", "64", "--sequences", "2")


precision = partial(ropewalk, "precision")


def test_the_table_explains_each_arm_and_the_verdict_follows(model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shown = precision(model, *SMALL, "--shifts", "0,16", "--run", run)
    assert "on cpu, 2 sequences of 64 tokens" in shown
    assert "bf16: as FlashAttention" in shown
    assert "- bf16: a shift by" in shown
    assert "- as given: no trap" in shown
    assert f"figures are in {run}" in shown
    assert any((run / "figures").glob("*.png"))


def test_options_are_named_as_they_are_written(model: Path) -> None:
    with pytest.raises(InvalidValue, match="--shifts = 'a': must be a whole number"):
        precision(model, "--quick", "--shifts", "a,b")
