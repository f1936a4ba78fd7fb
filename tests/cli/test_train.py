"""`ropewalk train`: its words, what it prints, and that it runs under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import ropewalk as rw
from ropewalk.cli import call
from ropewalk.errors import InputError, InvalidValue
from ropewalk.run_directory import read_journal
from tests.evaluation import tiny

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts") / "texts"
    folder.mkdir()
    for i, document in enumerate(tiny.documents(8)):
        (folder / f"{i}.txt").write_text(document.text)
    return folder


def words(model: Path, corpus: Path, run: Path, *more: object) -> list[str]:
    given = ("train", model, "--corpus", corpus, "--run", run, "--steps", 3, "--batch", 2, *more)
    return [str(word) for word in given]


@pytest.mark.slow
def test_command_and_function_train_the_same(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    given = words(model, corpus, run, "--to", 256, "--method", "linear", "--learning-rate", 0.01)
    assert call(given) == 0
    said = capsys.readouterr().out
    assert f"ropewalk evaluate {run}/evaluate --checkpoints 1" in said
    assert f"load it: AutoModelForCausalLM.from_pretrained('{run}/model')" in said
    assert call([*given, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    found = rw.train(
        str(model), corpus={"text": str(corpus)}, to="256", method="linear", steps=[3], batch=2,
        learning_rate=0.01, run=run,
    )  # fmt: skip
    assert printed == json.loads(json.dumps(found.to_json()))
    assert json.loads((run / "results.json").read_text()) == printed


def test_a_dry_run_writes_nothing(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    given = words(model, corpus, run, "--to", "32k", "--recipe", "anchor", "--dry-run")
    assert call(given) == 0
    assert "base_change" in (said := capsys.readouterr().out)
    assert "3 steps, 196,608 tokens" in said
    assert not run.exists()


def test_options_are_named_as_they_are_written(model: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="--stages = '512, 256': lengths must increase"):
        call(words(model, corpus, tmp_path / "run", "--stages", "512,256"))
    with pytest.raises(InputError, match=r"give the length to train for \(--to\), --stages, or a"):
        call(words(model, corpus, tmp_path / "run"))
    with pytest.raises(InvalidValue, match="--steps = 'many': must be a whole number"):
        call(["train", str(model), "--corpus", str(corpus), "--to", "256", "--steps", "many"])


def test_a_folder_of_tokens_stands_alone(model: Path, corpus: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    assert call(["data", "build", str(model), "--corpus", str(corpus), "-o", str(tokens)]) == 0
    with pytest.raises(InvalidValue, match="needs a name of its own"):
        call(words(model, tokens, tmp_path / "run", "--corpus", corpus, "--to", 256))


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--sequence-parallel", 2), ("--replicate", 2)])
def test_ranks_train_the_same_model(
    model: Path, corpus: Path, tmp_path: Path, more: tuple[Any, ...]
) -> None:
    given = ("--to", 256, "--method", "linear", "--learning-rate", 0.01, "--device", "cpu")
    assert call(words(model, corpus, tmp_path / "alone", *given)) == 0
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "--"]
    done = subprocess.run(
        [*command, "ropewalk", *words(model, corpus, tmp_path / "ranks", *given, *more)],
        capture_output=True, text=True, check=False, env={**os.environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("load it:") == 1
    alone, ranks = (
        [line["loss"] for line in read_journal(tmp_path / name / "training.jsonl")]
        for name in ("alone", "ranks")
    )
    assert ranks == pytest.approx(alone, abs=1e-5)
    one, two = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("alone", "ranks")
    )
    for name, weight in one.items():
        assert (weight - two[name]).abs().max() < 1e-4, name
