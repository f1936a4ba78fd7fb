"""`ropewalk train`: its words, what it prints, and that it runs under torchrun."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import ropewalk as rw
from ropewalk.cli import call
from ropewalk.errors import InputError, InvalidValue
from ropewalk.run_directory import read_journal
from tests.evaluation import tiny

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.texts(tmp_path_factory.mktemp("texts") / "texts", 8)


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
    with pytest.raises(InvalidValue):
        call(words(model, tokens, tmp_path / "run", "--corpus", corpus, "--to", 256))


RATE = ("--method", "linear", "--learning-rate", 0.01, "--device", "cpu")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


def launched(model: Path, corpus: Path, run: Path, *more: object) -> str:
    """Train on two ranks, and return the last lines of what was said."""
    command = [*TORCHRUN, "--nproc-per-node=2", "-m", "--", "ropewalk"]
    done = subprocess.run(
        [*command, *words(model, corpus, run, *more)],
        capture_output=True, text=True, check=False, env={**os.environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("load it:") == 1
    return done.stderr


def compare(alone: Path, ranks: Path) -> None:
    one, two = (
        [line["loss"] for line in read_journal(path / "training.jsonl")] for path in (alone, ranks)
    )
    assert two == pytest.approx(one, abs=1e-5)
    former, found = (load_file(path / "model" / "model.safetensors") for path in (alone, ranks))
    assert former.keys() == found.keys()
    for name, weight in former.items():
        assert weight.dtype == found[name].dtype
        apart = (weight.float() - found[name].float()).abs().max()
        rounding = weight.abs().max() * torch.finfo(weight.dtype).eps
        assert apart <= max(1e-4, float(rounding)), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "division"),
    [
        ("--to 256", ""),
        ("--to 256", "--sequence-parallel 2"),
        ("--to 256", "--replicate 2"),
        ("--to 256 --lora 4", ""),
        ("--to 256 --lora 4 --dtype bfloat16", ""),
        ("--stages 192,256", ""),
        ("--to 256 --mixed-windows", ""),
    ],
)
def test_ranks_train_the_same_model(
    model: Path, corpus: Path, tmp_path: Path, more: str, division: str
) -> None:
    given = (*RATE, *more.split())
    assert call(words(model, corpus, tmp_path / "alone", *given)) == 0
    said = launched(model, corpus, tmp_path / "ranks", *given, *division.split())
    assert "loads the whole model" not in said
    compare(tmp_path / "alone", tmp_path / "ranks")


def machines(
    model: Path, corpus: Path, runs: Sequence[Path], models: Sequence[Path] = ()
) -> list[subprocess.CompletedProcess[str]]:
    """Train on two machines: two launchers that meet over the loopback, each with a rank."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    started = []
    for number, run in enumerate(runs):
        meeting = ["--nnodes=2", "--nproc-per-node=1", f"--rdzv-endpoint=localhost:{port}"]
        meeting += ["--rdzv-backend=c10d", "--rdzv-id=two", f"--node-rank={number}"]
        given = words(models[number] if models else model, corpus, run, *RATE, "--to", 256)
        started.append(
            subprocess.Popen(
                [*TORCHRUN, *meeting, "-m", "--", "ropewalk", *given],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
    said = [process.communicate(timeout=240) for process in started]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *streams)
        for process, streams in zip(started, said, strict=True)
    ]


@pytest.mark.slow
def test_two_machines_with_a_common_file_system_train_as_one(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    assert call(words(model, corpus, tmp_path / "alone", *RATE, "--to", 256)) == 0
    done = machines(model, corpus, [tmp_path / "two"] * 2)
    assert [each.returncode for each in done] == [0, 0], done[0].stderr
    assert sum(each.stdout.count("load it:") for each in done) == 1
    compare(tmp_path / "alone", tmp_path / "two")


@pytest.mark.slow
def test_machines_without_a_common_file_system_are_refused(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    """Before the first step, on both: each has a disk of its own under the same arguments."""
    done = machines(model, corpus, [tmp_path / "one", tmp_path / "other"])
    assert all(each.returncode for each in done)
    for each in done:
        assert "does not see it; machines that train together need a common file" in each.stderr
    assert not list(tmp_path.rglob("training.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["model.safetensors", "config.json"])
def test_machines_with_different_models_are_refused(
    model: Path, corpus: Path, tmp_path: Path, changed: str
) -> None:
    """One weight, or one word of the config, is another in a copy."""
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    if changed == "config.json":
        config = json.loads((copy / changed).read_text())
        (copy / changed).write_text(json.dumps({**config, "attention_dropout": 0.5}))
    else:
        weights = load_file(copy / changed)
        next(iter(weights.values())).view(-1)[3] += 1e-3
        save_file(weights, copy / changed, {"format": "pt"})
    done = machines(model, corpus, [tmp_path / "run"] * 2, [model, copy])
    assert all(each.returncode for each in done)
    for each in done:
        assert f"differs from the first rank in {changed}" in each.stderr
    assert read_journal(tmp_path / "run" / "training.jsonl") == []


@pytest.mark.slow
def test_a_machine_without_the_model_stops_the_other(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    done = machines(model, corpus, [tmp_path / "run"] * 2, [model, tmp_path / "absent"])
    assert all(each.returncode for each in done)
    said = "".join(each.stderr for each in done)
    assert str(tmp_path / "absent") in said
    assert re.search(r"error: rank [01] failed; see its output", said)
