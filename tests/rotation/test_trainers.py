"""The lines of README in trainers that run: a fault ends the training before its first step."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import datasets
import pytest
import torch

import ropewalk as rw
from tests.evaluation.tiny import tokenizer
from tests.forks import ROOT, Forks
from tests.rotation import engine_process
from tests.rotation.planted import FAULTS, TARGET, YARN, llama, plan_of

PROGRAM = """
import json, os, sys, torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments
from tests.rotation.planted import FAULTS, llama

class Windows(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, place):
        tokens = torch.arange(8) + place
        return {"input_ids": tokens, "labels": tokens}

os.chdir(sys.argv[3])
model = llama() if sys.argv[1] == "planned" else FAULTS[sys.argv[1]][0]()
args = TrainingArguments("out", use_cpu=True, max_steps=2, save_strategy="no", report_to=[])
trainer = Trainer(model, args, train_dataset=Windows())
try:
    exec(sys.argv[2])
    told = "trained"
except rw.GateFailed as error:
    told = str(error)
print(json.dumps({"steps": trainer.state.global_step, "told": told}))
"""
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(plan_of().dumps(), encoding="utf-8")
    return tmp_path


def shown() -> str:
    """The lines for a Trainer, as README has them."""
    [lines] = re.findall(r"^    import ropewalk as rw\n(?:    .+\n)+", README, re.MULTILINE)
    return dedent(lines)


def test_the_lines_for_a_trainer(folder: Path, fresh: Forks) -> None:
    lines = shown()
    assert len(lines.splitlines()) == 3
    for start, steps, told in (
        ("planned", 2, "trained"),
        ("factor lost", 0, "likely cause: no scaling"),
    ):
        done = fresh.run(["-c", PROGRAM, start, lines, folder])
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["steps"] == steps
        assert told in found["told"]


def test_the_line_for_vllm(folder: Path, fresh: Forks) -> None:
    [line] = re.findall(r"^    (ROPEWALK_PLAN=\S+) vllm serve", README, re.MULTILINE)
    name, _, value = line.partition("=")
    plain = {"rope_type": "default", "rope_theta": YARN["rope_theta"]}
    cases = {
        "planned": {"ropes": [YARN], "served": TARGET},
        "lost": {"ropes": [plain], "served": TARGET},
    }
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    (folder / "room").mkdir()
    words: list[Any] = [
        "-m",
        engine_process.__name__,
        "vllm",
        folder / "cases.json",
        folder / "room",
    ]
    done = fresh.run(words, {**os.environ, name: value})
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["planned"].startswith("loaded; ropewalk: ")
    assert "likely cause: no scaling" in told["lost"]


class Steps(Exception):
    """A loop of one's own got to its first step."""


def loop(model: Any, plan: str) -> None:
    rw.assert_rotation(model, plan)
    raise Steps


def test_the_line_for_a_loop_of_ones_own(folder: Path) -> None:
    plan = str(folder / "plan.json")
    with pytest.raises(Steps):
        loop(llama(), plan)
    with pytest.raises(rw.GateFailed, match="likely cause: no scaling"):
        loop(FAULTS["factor lost"][0](), plan)


@pytest.mark.filterwarnings("ignore")  # of TRL's own
@pytest.mark.parametrize("fault", [None, "attention factor dropped"])
def test_it_works_in_trl(fault: str | None, folder: Path) -> None:
    trl = pytest.importorskip("trl", reason="make test-trl has it")
    config = {
        "use_cpu": True,
        "bf16": False,
        "max_steps": 1,
        "save_strategy": "no",
        "report_to": [],
    }
    tokens = torch.arange(4)[None]
    trainer = trl.SFTTrainer(
        FAULTS[fault][0]() if fault else llama(),
        args=trl.SFTConfig(
            str(folder / "out"), dataset_kwargs={"skip_prepare_dataset": True}, **config
        ),
        train_dataset=datasets.Dataset.from_dict({"input_ids": [[3, 4, 5, 6]] * 4}),
        data_collator=lambda rows: dict.fromkeys(("input_ids", "labels", "position_ids"), tokens),
        processing_class=tokenizer(),
        callbacks=[rw.RotationCallback(folder / "plan.json")],
    )
    if fault:
        with pytest.raises(rw.GateFailed, match="without its attention factor"):
            trainer.train()
    else:
        trainer.train()
    assert trainer.state.global_step == (0 if fault else 1)
