"""What a person reads of `ropewalk verify`, and its exit status; the rest is tests/api."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from ropewalk.__main__ import run
from ropewalk.models.config import BUNDLED_FOLDER
from tests.audit.files.folders import bundled, edit
from tests.cli.calling import result_of

verify = partial(result_of, "verify")


def test_a_model_that_is_well_is_told_in_a_few_lines(tmp_path: Path) -> None:
    folder = bundled(tmp_path / "model")
    result = verify(folder, "--runtime", "vllm", "--no-run")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{folder} (transformers folder, for 512): OK",
        "  vllm: OK (by its rules, not tested here): full_attention: 16 pairs, slowest period "
        "35,333; accepts up to 512",
        "  weights: OK, 29 tensors in model.safetensors, complete, shapes match the config",
        "  tokenizer: OK, tokenizer.json loads, its largest id 1,023 of 1,024",
        "  bytes not compared: no manifest",
    ]


def test_a_runtime_that_nobody_looked_at_gives_its_reason_once(tmp_path: Path) -> None:
    folder = bundled(tmp_path / "model")
    edit(folder / "config.json", lambda config: config.update(model_type="evil"))
    result = verify(folder, "--runtime", "vllm", "--runtime", "sglang", "--no-run")
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert "  vllm: not established (not looked at)" in lines
    assert "  sglang: not established (not looked at)" in lines
    assert lines[-1].startswith("not established: vllm, sglang: model type 'evil' is not in")


def test_the_exit_status_is_the_verdict(tmp_path: Path) -> None:
    folder = bundled(tmp_path / "model")
    quick = ("--runtime", "vllm", "--no-run", "--json")
    assert verify(folder, *quick).exit_code == 0
    assert verify(folder, *quick, "--length", "8k").exit_code == 1
    config = verify(folder / "config.json", *quick)
    assert config.exit_code == 3
    said = json.loads(config.stdout)
    assert said["verdict"] == "not established"
    assert said["verdicts"] == {"vllm": "OK"}
    assert said["runtimes"]["vllm"]["basis"] == "by its rules"
    assert len(said["not_established"]) == 2
    (folder / "model.safetensors").write_bytes(b"")
    assert verify(folder, *quick).exit_code == 1


@pytest.mark.parametrize("name", [b"a\nb: OK", b"red\x1b[31m", b"caf\xe9"])
def test_a_folder_of_any_name_is_a_model_and_is_shown_escaped(
    name: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / os.fsdecode(name)
    shutil.copytree(BUNDLED_FOLDER, folder)
    assert run(["inspect", str(folder)]) == 0
    assert run(["plan", str(folder), "--to", "2k", "--json"]) == 0
    capsys.readouterr()
    assert run(["verify", str(folder), "--no-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert shown.splitlines()[0].endswith(" (transformers folder, for 512): OK")
    if name.endswith(b"\xe9"):  # safetensors takes no such path
        assert run(["evaluate", str(folder), "--task", "passkey", "--length", "512"]) == 2
        assert "has a name that is not UTF-8" in capsys.readouterr().err
