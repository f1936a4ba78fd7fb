"""What a person reads of `ropewalk verify`, and its exit status; the rest is tests/api."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ropewalk.cli import command_line
from ropewalk.errors import InputError
from ropewalk.outputs import write_atomically
from tests.audit.corpus import BROKEN, CLEAN, TARGET


def verify(*arguments: object) -> Result:
    result = CliRunner().invoke(command_line(["verify"]), ["verify", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_clean_folder_is_well(tmp_path: Path) -> None:
    export = CLEAN["searched"]
    folder = export.write(tmp_path / "model")
    plan = tmp_path / "plan.json"
    write_atomically(plan, export.plan.dumps())
    result = verify(folder, "--plan", plan)
    assert result.exit_code == 0
    assert "all well: it serves 4k" in result.stdout
    period = f"slowest period {export.plan.longest().wavelengths.max():,.0f}"
    assert f"pairs, {period}, cos and sin times 1.05" in result.stdout
    assert "vllm (by its rules, not run): full_attention" in result.stdout


def test_a_trap_is_told_with_its_consequence_and_its_remedy(tmp_path: Path) -> None:
    folder = BROKEN["attention_factor of longrope without mscale"].export.write(tmp_path)
    result = verify(folder)
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "wrong: attention-factor-ignored (vllm, sglang)" in text
    assert "What to do: add short_mscale and long_mscale = 1.05" in text
    assert text.endswith("1 thing wrong")
    assert verify(folder, "--runtime", "transformers").exit_code == 0


def test_the_exit_status_is_the_verdict_for_the_length(tmp_path: Path) -> None:
    folder = CLEAN["any λ"].write(tmp_path)
    assert verify(folder, "--length", TARGET).exit_code == 0
    assert verify(folder, "--length", "8k", "--json").exit_code == 1


def test_bad_input_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file or folder"):
        verify(tmp_path / "nowhere")
