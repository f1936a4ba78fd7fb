"""An evaluation over the ranks of torchrun: the records of one process, whoever answered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk.data.corpora import Document
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.models.dividing import check_divides
from ropewalk.run_directory import RECORDS, read_journal
from tests.evaluation import tiny
from tests.forks import Forks
from tests.searching.model.test_ranks import processes

PROGRAM = """
import json, sys, torch
import ropewalk as rw
from ropewalk.evaluation import chunks

torch.set_num_threads(1)
asked, out = json.loads(sys.argv[1]), sys.argv[2]
held = []
step = chunks._Room.update

def watched(self, *given, **named):
    found = step(self, *given, **named)
    held.append(sum(kept.numel() for kept in self._kept))
    return found

chunks._Room.update = watched
found = rw.evaluate(**asked)
import os
rank = os.environ["RANK"]
json.dump({"found": found.to_json(), "held": max(held, default=0)}, open(f"{out}/{rank}.json", "w"))
"""


def folder_of(model: Any, place: Path) -> Path:
    model.save_pretrained(place)
    tiny.tokenizer().save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tiny.model(num_attention_heads=8, num_key_value_heads=4, hidden_size=64)
    return folder_of(model, tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for document in tiny.documents():
        (folder / f"{document.name}.txt").write_text(document.text)
    return folder


def over(fresh: Forks, count: int, out: Path, **asked: Any) -> list[dict[str, Any]]:
    """What each of so many ranks returned."""
    out.mkdir(exist_ok=True)
    words = {key: str(value) if isinstance(value, Path) else value for key, value in asked.items()}
    for process in processes(fresh, PROGRAM, [json.dumps(words), str(out)], count):
        ended = process.wait()
        assert ended.returncode == 0, ended.stderr
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(count)]


def records(run: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    names = ("method", "task", "metric", "length", "sample")
    return {tuple(r[name] for name in names): dict(r) for r in read_journal(run / RECORDS)}


def check_same(run: Path, alone: Path) -> None:
    """First choices are identical, losses equal to 1e-5."""
    ours, theirs = records(run), records(alone)
    assert list(ours) == list(theirs)
    for key, own in ours.items():
        assert own["score"] == pytest.approx(theirs[key]["score"], rel=1e-5)
        assert own.get("answer") == theirs[key].get("answer")
        assert own["weights"] == theirs[key]["weights"]


ASKED: dict[str, Any] = {
    "methods": ["none", "yarn"],
    "to": "512",
    "tasks": ["perplexity", "kv", "passkey"],
    "lengths": ["256", "512"],
    "samples": 6,
    "device": "cpu",
}


@pytest.mark.parametrize(("count", "per_copy"), [(2, 2), (2, 1), pytest.param(4, 2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["teacher_forced", "generate"])
def test_ranks_keep_the_records_of_one_process(
    count: int, per_copy: int, mode: str, llama: Path, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    asked = {**ASKED, "model": llama, "corpus": corpus, "mode": mode}
    rw.evaluate(**{**asked, "run": tmp_path / "alone"})
    run = tmp_path / "run"
    found = over(fresh, count, tmp_path, **asked, run=run, ranks_per_copy=per_copy)
    check_same(run, tmp_path / "alone")
    assert all(each["found"] == found[0]["found"] for each in found)
    assert found[0]["found"] == json.loads((run / "results.json").read_text())
    # The run goes on in one process, and has nothing left to do.
    before = (run / RECORDS).read_bytes()
    rw.evaluate(**{**asked, "run": run})
    assert (run / RECORDS).read_bytes() == before
