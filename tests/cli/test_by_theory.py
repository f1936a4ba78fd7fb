from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ropewalk.cli import command_line
from ropewalk.context_plan import ContextPlan
from ropewalk.theory.decay import decay
from ropewalk.theory.table import safe_base

CONFIGS = Path(__file__).parents[1] / "golden" / "configs"
LLAMA2 = CONFIGS / "llama-2-7b.json"
LLAMA31 = CONFIGS / "llama-3.1-8b.json"


def ropewalk(*arguments: object) -> str:
    result = CliRunner().invoke(command_line(), [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def ropewalk_json(*arguments: object) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(ropewalk(*arguments, "--json"))
    return value


def test_plan_without_a_method_compares_and_writes_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    value = ropewalk_json("plan", LLAMA2, "--to", "16k")
    names = [candidate["method"] for candidate in value["candidates"]]
    assert value["best"] == names[0]
    assert {"linear", "yarn", "ntk", "base_change", "llama3"} <= set(names)
    assert {"longrope", "resonance"} == set(value["refused"])
    plan = ContextPlan.read(tmp_path / "plan.json")
    assert plan.id == value["candidates"][0]["plan_id"]
    assert plan.target_length == 16384
    best = decay(plan.longest(), 16384)
    assert value["candidates"][0]["violations"] == best.violations
    assert value["candidates"][0]["effective_length"] == best.effective_length
    assert all(candidate["reason"].endswith(".") for candidate in value["candidates"])


def test_the_table_says_why(tmp_path: Path) -> None:
    output, picture = tmp_path / "best.json", tmp_path / "factors.svg"
    text = ropewalk("plan", LLAMA2, "--to", "16k", "--output", output, "--plot", picture)
    assert "similar keys win at every distance" in text
    assert "all runtimes" in text
    assert "longrope is not among them" in text
    assert ContextPlan.read(output).target_length == 16384
    assert "yarn" in picture.read_text(encoding="utf-8")


def test_settings_need_a_method() -> None:
    result = CliRunner().invoke(
        command_line(), ["plan", str(LLAMA2), "--to", "16k", "--set", "b=1"]
    )
    assert "--method" in str(result.exception)


def test_base_change_gets_the_safe_base() -> None:
    value = ropewalk_json("plan", LLAMA2, "--to", "8k", "--method", "base_change")
    base = value["schedules"]["full_attention"][0]["schedule"]["recipe"][0]["parameters"]["base"]
    assert 1 <= base / safe_base(128, 8192).value < 1.01


def test_base_change_keeps_a_base_that_is_large_enough() -> None:
    value = ropewalk_json(
        "plan", LLAMA31, "--to", "8k", "--method", "base_change", "--from-original"
    )
    assert value["rescale_factors"] == pytest.approx([1.0] * 64)


def test_a_given_base_is_taken() -> None:
    value = ropewalk_json(
        "plan", LLAMA2, "--to", "8k", "--method", "base_change", "--set", "base=20000"
    )
    assert value["rescale_factors"][32] == pytest.approx(2**0.5)


def test_inspect_says_what_the_theory_says() -> None:
    theory = ropewalk_json("inspect", LLAMA2)["theory"]
    assert theory["length"] == 4096
    assert 0 < theory["effective_length"] < 4096
    assert theory["violations"] > 0
    assert theory["out_of_distribution_pairs"] == []
    assert theory["critical_dimension"] == 2 * theory["critical_pair"] == 92
    assert "effective length: 1,707 of 4k" in ropewalk("inspect", LLAMA2)


def test_inspect_of_a_head_that_turns_in_part() -> None:
    model = CONFIGS / "pythia-1.4b.json"
    assert ropewalk_json("inspect", model)["theory"]["effective_length"] is None
    assert "effective length: all of 2k" in ropewalk("inspect", model)
