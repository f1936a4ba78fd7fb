"""What a person reads of `ropewalk export`, its exit status, and what it refuses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ropewalk.errors import InputError, RopewalkError, Unsupported
from ropewalk.exporting import fresh_process
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from tests.cli.calling import result_of
from tests.exporting.folders import TARGET, answered_here, saved, spoil_exports


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_process, "run_script", answered_here)


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("source"))


def plan_file(source: str, place: Path, methods: str, **more: Any) -> Path:
    path = place / f"{methods}.json"
    path.write_text(extend_plan(present_plan(source), TARGET, methods, **more).dumps())
    return path


export = partial(result_of, "export")


def test_a_person_reads_what_was_proven_and_how_to_load_it(source: str, tmp_path: Path) -> None:
    plan = plan_file(source, tmp_path, "yarn")
    (Path(source) / "tokenizer_config.json").unlink()
    said = export(source, "--plan", plan, "--runtime", "vllm", "-o", tmp_path / "out").stdout
    assert "follows the plan" in said
    assert f"vllm serve {tmp_path / 'out'} --max-model-len {TARGET}" in said
    assert "--hf-overrides" in said


def test_a_failed_gate_exits_with_1_says_so_in_json_and_leaves_nothing(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_exports(monkeypatch)
    plan = plan_file(source, tmp_path, "yarn")
    out = tmp_path / "out"
    with pytest.raises(RopewalkError, match="was not written") as caught:
        export(source, "--plan", plan, "--runtime", "transformers", "-o", out, "--json")
    assert caught.value.exit_status == 1
    (said,) = caught.value.__notes__
    assert json.loads(said)["agreement"]["passed"] is False
    assert not out.exists()


def test_a_dry_run_shows_the_matrix_and_what_approximations_cost(
    source: str, tmp_path: Path
) -> None:
    plan = plan_file(source, tmp_path, "ntk_mixed", log_n="beyond")
    said = export(source, "--plan", plan, "--dry-run").stdout
    assert "log-n" in said
    assert "rope_freqs.weight" in said
    assert "approximated in vllm: 0." in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ntk_mixed.json"]
    config = Path(source) / "config.json"
    said = export(config, "--plan", plan, "--dry-run").stdout
    assert "approximated in vllm: not measured: its weights or torch are not here" in said


@pytest.mark.parametrize(
    ("methods", "arguments", "kind", "complaint"),
    [
        ("linear", ("--runtime", "vllm"), InputError, "--output"),
        ("linear", ("-o", "out"), InputError, "--runtime"),
        ("dynamic_ntk", ("--runtime", "vllm", "-o", "out"), Unsupported, "--approximate"),
    ],
)
def test_wrong_input_is_one_line(
    source: str,
    tmp_path: Path,
    methods: str,
    arguments: tuple[str, ...],
    kind: type[RopewalkError],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_file(source, tmp_path, methods)
    with pytest.raises(kind, match=complaint) as caught:
        export(source, "--plan", plan, *arguments)
    assert caught.value.exit_status == 2
    assert not (tmp_path / "out").exists()
