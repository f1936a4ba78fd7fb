"""`ropewalk verify` as a user meets it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ropewalk.cli import command_line
from ropewalk.errors import InputError, RopewalkError
from ropewalk.exporting import transformers as to_transformers
from ropewalk.exporting.folder import PLAN
from ropewalk.models.config import BUNDLED_FOLDER, load_config, present_plan
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.run_directory import write_atomically
from tests.audit.corpus import BROKEN, CLEAN, TARGET
from tests.exporting.folders import answered_here


def verify(*arguments: object) -> Result:
    result = CliRunner().invoke(command_line(), ["verify", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def verify_json(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = verify(*arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


def wrong(value: dict[str, Any]) -> set[str]:
    """The traps that fail it; notes do not."""
    return {warning["trap"] for warning in value["warnings"] if warning["wrong"]}


def test_a_clean_folder_passes_with_what_every_runtime_does(tmp_path: Path) -> None:
    export = CLEAN["searched"]
    folder = export.write(tmp_path / "model")
    plan = tmp_path / "plan.json"
    write_atomically(plan, export.plan.dumps())
    status, value = verify_json(folder, "--plan", plan)
    assert (status, value["passed"], wrong(value)) == (0, True, set())
    assert value["target"] == "transformers folder"
    assert value["parity"] is None, "there are no weights to run"
    sources = {name: reading["source"] for name, reading in value["runtimes"].items()}
    assert sources == {
        "transformers": "measured",
        "vllm": "by its rules, not run",
        "sglang": "by its rules, not run",
    }
    for reading in value["runtimes"].values():
        (step,) = reading["layers"]["full_attention"]
        assert step["attention_scaling"] == pytest.approx(1.05)
        assert step["inverse_frequencies"] == pytest.approx(
            export.plan.longest().inverse_frequencies.tolist(), rel=1e-6
        )
    assert "all well: it serves 4k" in verify(folder, "--plan", plan).stdout


def test_a_trap_is_told_with_its_consequence_and_its_remedy(tmp_path: Path) -> None:
    folder = BROKEN["attention_factor of longrope without mscale"].export.write(tmp_path)
    result = verify(folder)
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "wrong: attention-factor-ignored (vllm, sglang)" in text
    assert "What to do: add short_mscale and long_mscale = 1.05" in text
    assert verify(folder, "--runtime", "transformers").exit_code == 0
    status, value = verify_json(folder)
    assert (status, value["passed"]) == (1, False)
    assert wrong(value) == {"attention-factor-ignored"}
    warning = value["warnings"][0]
    assert set(warning) == {"trap", "runtimes", "what", "consequence", "remedy", "wrong"}


def test_a_length_is_checked_where_there_is_no_plan(tmp_path: Path) -> None:
    folder = CLEAN["any λ"].write(tmp_path)
    assert verify(folder, "--length", TARGET).exit_code == 0
    assert verify(folder, "--length", "8k").exit_code == 1


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model's weights under the config of a plan, which goes along."""
    folder = tmp_path_factory.mktemp("verify") / "model"
    shutil.copytree(BUNDLED_FOLDER, folder)
    plan = extend_plan(present_plan(BUNDLED_FOLDER), 2048, "ntk_mixed")
    write_atomically(folder / PLAN, plan.dumps())
    _write_json(folder / "config.json", with_plan(BUNDLED_FOLDER, plan))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    _write_json(folder / "tokenizer_config.json", tokenizer | {"model_max_length": 2048})
    return folder


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def test_what_we_export_with_weights_is_run_beside_its_own_plan(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", answered_here)  # a fresh process is slow to start
    status, value = verify_json(exported)
    assert status == 0
    assert value["parity"]["passed"]
    assert value["parity"]["tokens"] > 512, "beyond the trained length"
    assert "beside its own plan.json" in value["notes"]


def test_weights_under_another_config_are_found_out(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["rope_parameters"]["rope_theta"] *= 2
    _write_json(folder / "config.json", config)
    status, value = verify_json(folder, "--no-run")
    assert status == 1
    assert wrong(value) == {"theta-lost"}


def test_weights_that_are_cut_off_are_named(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    status, value = verify_json(folder)
    assert status == 1
    assert wrong(value) == {"refused"}
    assert "is not a whole safetensors file" in value["warnings"][-1]["what"]


def test_the_bundled_model_is_well() -> None:
    assert verify(BUNDLED_FOLDER, "--no-run").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere"], "there is no such file or folder"),
        (["{folder}", "--runtime", "ollama"], "unknown runtime 'ollama'"),
        (["{folder}", "--plan", "no.json"], "there is no such file"),
        (["{folder}", "--plan", "no.json", "--length", "4k"], "give one of the two"),
        (["{folder}/notes.txt"], "neither a model's folder nor a GGUF file"),
        (["{folder}/empty"], "config.json: there is no such file"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], text: str, tmp_path: Path) -> None:
    folder = CLEAN["plain"].write(tmp_path / "model")
    (folder / "notes.txt").write_text("not a model", encoding="utf-8")
    (folder / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        verify(*(argument.format(folder=folder) for argument in arguments))
    assert text in str(caught.value)


def test_a_config_that_would_take_for_ever_is_refused(tmp_path: Path) -> None:
    export = CLEAN["plain"]
    export.write(tmp_path)
    huge = {**export.config, "num_hidden_layers": 10**9}
    _write_json(tmp_path / "config.json", huge)
    with pytest.raises(RopewalkError, match="num_hidden_layers = 1000000000"):
        verify(tmp_path)


def test_pickled_weights_are_named_and_not_read(tmp_path: Path) -> None:
    folder = CLEAN["plain"].write(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    status, value = verify_json(folder)
    assert status == 0
    assert any("pickle" in note for note in value["notes"])


def test_an_export_for_transformers_says_what_it_would_be_elsewhere(tmp_path: Path) -> None:
    """vLLM and SGLang read keys of their own for the attention factor, and else take Phi-3's."""
    source = load_config(BUNDLED_FOLDER)
    plan = extend_plan(present_plan(source), 1024, "ntk_mixed")
    _write_json(tmp_path / "config.json", to_transformers.stock_config(source, plan))
    assert verify(tmp_path, "--runtime", "transformers").exit_code == 0
    status, value = verify_json(tmp_path)
    assert status == 1
    assert wrong(value) == {"attention-factor-ignored"}
