"""The command: what it prints, what it exits with, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ropewalk import cli
from ropewalk.errors import InputError, RopewalkError, UnknownName, Unsupported
from ropewalk.models.config import load_config, present_plan
from ropewalk.planning.extension import extend_plan
from tests.exporting.folders import TARGET, answered_here, saved, spoil_exports


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", answered_here)


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("source"))


def plan_file(source: str, place: Path, methods: str, **more: Any) -> Path:
    path = place / f"{methods}.json"
    path.write_text(extend_plan(present_plan(source), TARGET, methods, **more).dumps())
    return path


def export(*arguments: object) -> Any:
    """The command's result; an error of ours is raised, as it is for `main`."""
    result = CliRunner().invoke(cli.command_line(), ["export", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        result.exception.add_note(result.stdout)
        raise result.exception
    return result


@pytest.mark.parametrize("target", ["transformers", "vllm", "sglang"])
def test_json_has_exactly_the_promised_members(source: str, tmp_path: Path, target: str) -> None:
    plan = plan_file(source, tmp_path, "ntk_mixed")
    out = tmp_path / "out"
    answer = json.loads(export(source, "--plan", plan, "--to", target, "-o", out, "--json").stdout)
    assert list(answer) == ["target", "path", "parity", "warnings", "load", "overrides"]
    assert answer["target"] == target
    parity = answer["parity"]
    assert parity["passed"] is True
    assert parity["max_logit_difference"] <= parity["tolerance"]
    assert parity["tokens"] > TARGET
    assert load_config(out)["rope_parameters"]["rope_type"] == "longrope"


def test_a_person_reads_what_was_proven_and_how_to_load_it(source: str, tmp_path: Path) -> None:
    plan = plan_file(source, tmp_path, "yarn")
    (Path(source) / "tokenizer_config.json").unlink()
    said = export(source, "--plan", plan, "--to", "vllm", "-o", tmp_path / "out").stdout
    assert "computes what the plan says" in said
    assert f"vllm serve {tmp_path / 'out'} --max-model-len {TARGET}" in said
    assert "--hf-overrides" in said


def test_a_failed_gate_exits_with_1_says_so_in_json_and_leaves_nothing(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_exports(monkeypatch)
    plan = plan_file(source, tmp_path, "yarn")
    out = tmp_path / "out"
    with pytest.raises(RopewalkError, match="was not written") as caught:
        export(source, "--plan", plan, "--to", "transformers", "-o", out, "--json")
    assert caught.value.exit_status == 1
    (said,) = caught.value.__notes__
    assert json.loads(said)["parity"]["passed"] is False
    assert not out.exists()


def test_a_dry_run_shows_the_matrix_and_what_approximations_cost(
    source: str, tmp_path: Path
) -> None:
    plan = plan_file(source, tmp_path, "ntk_mixed", log_n="beyond")
    answer = json.loads(export(source, "--plan", plan, "--dry-run", "--json").stdout)
    assert answer["matrix"]["log-n"]["vllm"]["fit"] == "approximated"
    assert answer["matrix"]["factors by pair"]["llama.cpp"]["fit"] == "equivalent"
    assert "nats a token" in answer["losses"]["transformers"]
    said = export(source, "--plan", plan, "--dry-run").stdout
    assert "log-n" in said
    assert "rope_freqs.weight" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ntk_mixed.json"]


def test_a_dry_run_needs_no_weights(source: str, tmp_path: Path) -> None:
    plan = plan_file(source, tmp_path, "dynamic_ntk")
    config = Path(source) / "config.json"
    answer = json.loads(export(config, "--plan", plan, "--dry-run", "--json").stdout)
    assert answer["losses"]["vllm"].startswith("not measured")


@pytest.mark.parametrize(
    ("methods", "arguments", "kind", "complaint"),
    [
        ("linear", ("--to", "vlm", "-o", "out"), UnknownName, "did you mean 'vllm'"),
        ("linear", ("--to", "vllm"), InputError, "-o OUT"),
        ("linear", ("-o", "out"), InputError, "--to RUNTIME"),
        ("linear", ("--to", "vllm", "-o", "out", "--v4-keys"), InputError, "--v4-keys"),
        ("linear", ("--to", "llama.cpp", "-o", "out", "--fold"), InputError, "--fold"),
        ("dynamic_ntk", ("--to", "vllm", "-o", "out"), Unsupported, "--approximate"),
        ("linear", ("--to", "vllm", "-o", "out", "--dtype", "int4"), UnknownName, "int4"),
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


def test_a_plan_that_llama_cpp_only_approximates_goes_out_as_the_nearest(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ropewalk.context_plan import ContextPlan
    from ropewalk.exporting import llama_cpp
    from ropewalk.exporting.parity import Exported

    given: list[ContextPlan] = []

    def written(model: str, plan: ContextPlan, out: Path, **_: Any) -> Exported:
        given.append(plan)
        return Exported("llama.cpp", out, None, ("own",))

    monkeypatch.setattr(llama_cpp, "export", written)
    plan = plan_file(source, tmp_path, "ntk", log_n="beyond")
    out = tmp_path / "out.gguf"
    said = export(
        *(source, "--plan", plan, "--to", "llama.cpp", "-o", out, "--approximate", "--json")
    )
    warnings = json.loads(said.stdout)["warnings"]
    assert given[0].longest().log_n is None
    assert warnings[0].startswith("approximated: log-n")
    assert "nats a token" in warnings[1]
    assert warnings[2] == "own"
