"""Assumptions about a model's config: warnings on standard error, or errors with --strict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.errors import InputError
from tests.cli.calling import result_of

CONFIG = {
    "model_type": "a new one",
    "hidden_size": 64,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
    "rope_theta": 1e4,
}
ASSUMED = "config.json: model_type 'a new one' is not known to ropewalk; the model is taken to rot"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").touch()
    return tmp_path


@pytest.fixture
def plan(folder: Path) -> Path:
    file = folder.parent / f"{folder.name}-plan.json"
    file.write_text(rw.plan(CONFIG, "1k", "linear").plan.dumps())
    return file


@pytest.mark.parametrize(
    "words",
    [
        ["inspect"],
        ["plan", "--to", "1k", "--method", "linear"],
        ["plan", "--to", "1k"],
        ["verify", "--no-run"],
        ["evaluate"],
        ["search", "--to", "1k"],
        ["precision"],
        ["extend"],
        ["extend", "--dry-run"],
        ["export", "--plan", "PLAN", "--runtime", "vllm", "-o", "out"],
        ["export", "--plan", "PLAN", "--dry-run"],
    ],
)
def test_strict_refuses_what_a_verb_would_assume(
    words: list[str], folder: Path, plan: Path
) -> None:
    asked = [words[0], str(folder), *(str(plan) if w == "PLAN" else w for w in words[1:])]
    with pytest.raises(InputError) as refused:
        result_of(*asked, "--strict")
    assert ASSUMED in str(refused.value)
    assert "--strict allows no assumption" in str(refused.value)


@pytest.mark.parametrize(
    "words", [["inspect"], ["plan", "--to", "1k", "--method", "linear"], ["plan", "--to", "1k"]]
)
def test_assumptions_go_to_standard_error_once_and_into_the_json(
    words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = result_of(words[0], ".", *words[1:], "--json")
    (assumption,) = json.loads(done.stdout)["assumptions"]
    assert ASSUMED in assumption
    assert done.stderr.count(f"warning: {assumption}\n") == 1
    assert done.stderr.count("warning:") == 1


def test_in_python_assumptions_are_given_to_notice_and_kept_in_the_result() -> None:
    said: list[str] = []
    found = rw.inspect(CONFIG, notice=said.append)
    assert said == [f"warning: {text}" for text in found.assumptions]
    assert type(found).from_json(json.loads(json.dumps(found.to_json()))) == found
    with pytest.raises(InputError, match="not known to ropewalk"):
        rw.inspect(CONFIG, strict=True)
    assert rw.inspect("bundled", strict=True).assumptions == ()


def test_verify_informs_of_assumptions(folder: Path) -> None:
    found = rw.verify(folder / "config.json", run=False, runtimes=["vllm"])
    (finding,) = [f for f in found.warnings if f.trap == "assumption"]
    assert "'a new one' is not known" in finding.what
    assert not finding.wrong
