"""`ropewalk precision` as a user meets it, on the bundled model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropewalk.cli import command_line
from ropewalk.errors import RopewalkError

SMALL = ("--quick", "--arms", "fp32,bf16", "--length", "64", "--sequences", "2")


def precision(*arguments: object) -> str:
    words = ["precision", "bundled", *map(str, arguments)]
    result = CliRunner().invoke(command_line(), words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_run_goes_on_where_it_was_and_says_the_same(tmp_path: Path) -> None:
    arguments = (*SMALL, "--lengths", "32,64", "--shifts", "0,16", "--run", tmp_path / "run")
    first = json.loads(precision(*arguments, "--json"))
    records = (tmp_path / "run" / "records.jsonl").read_bytes()
    assert json.loads(precision(*arguments, "--json")) == first
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == records
    (fp32, bf16) = (arm for arm in first["arms"] if arm["weights"] == "given")
    (_, _, (strays, *_)), (_, _, (same, *_)) = bf16["curve"]
    assert same == 0, "a shift compared with itself"
    assert strays > 100 * fp32["curve"][0][2][0]
    assert any((tmp_path / "run" / "figures").glob("*.png"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--arms", "fp23"), "fp23"),
        (("--arms", "fp32", "--length", "9M"), "9437184|shorter|longer|tokens"),
        (("--shifts", "16,32"), "0 is not among them"),
        (("--shifts", "a,b"), "no list of whole numbers"),
        (("--arms", "tf32", "--device", "cpu"), "no TF32 units"),
        (("--sequences", "0"), "must be positive"),
        (("--length", "128", "--lengths", "256"), "only 128 tokens"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(RopewalkError, match=text) as caught:
        precision("--quick", *arguments)
    assert caught.value.exit_status == 2
