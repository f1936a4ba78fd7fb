"""Collator and callback in `transformers.Trainer`, as docs/training.md shows it."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError
from ropewalk.models.config import BUNDLED_FOLDER
from ropewalk.models.load import load_tokenizer
from ropewalk.training.callback import NotFinite, RopewalkCallback
from ropewalk.training.collator import WindowCollator
from tests.training import tiny


def stock(
    folder: Path, windows: Any, steps: int = 3, *, model: Any = None, data: Any = None, **more: Any
) -> Trainer:
    final, tokenizer = more.pop("final", None), more.pop("tokenizer", None)
    changes = {"remove_unused_columns": False, "train_sampling_strategy": "sequential", **more}
    return Trainer(
        tiny.build() if model is None else model,
        tiny.arguments(folder, steps, **changes),
        train_dataset=windows,
        data_collator=WindowCollator(),
        processing_class=tokenizer,
        callbacks=[RopewalkCallback(tiny.plan(), data=data or {}, final=final)],
    )


def test_it_trains_as_a_plain_loop(store: Path, tmp_path: Path) -> None:
    windows = tiny.stream(store, count=16)
    tokenizer = load_tokenizer(BUNDLED_FOLDER)
    trained = stock(tmp_path, windows, final=tmp_path / "final", tokenizer=tokenizer)
    trained.train()
    tiny.check_course(trained, windows, 3, tmp_path / "final")
    own = load_tokenizer(tmp_path / "final")
    assert own("def f(x):")["input_ids"] == tokenizer("def f(x):")["input_ids"]


def test_a_checkpoint_knows_plan_and_data_and_goes_on(store: Path, tmp_path: Path) -> None:
    windows = tiny.stream(store, count=16)
    data = {"store": "digest", "seed": 1, "lengths": (1, 2)}
    first = stock(tmp_path, windows, data=data, save_strategy="steps", save_steps=2)
    first.train()
    state = json.loads((tmp_path / "checkpoint-2" / "trainer_state.json").read_text())
    own = state["stateful_callbacks"]["ropewalk"]["attributes"]
    assert ContextPlan.from_json(own["plan"]) == tiny.plan()
    assert own["windows"] == 2 * tiny.PER_STEP
    again = stock(tmp_path, windows, data=data, restore_callback_states_from_checkpoint=True)
    again.train(str(tmp_path / "checkpoint-2"))
    assert tiny.apart(tiny.course(first), tiny.course(again)) == (0, 0)
    other = stock(tmp_path, windows, data={**data, "seed": 2})
    with pytest.raises(InputError, match="step 2 was trained with another data"):
        other.train(str(tmp_path / "checkpoint-2"))


def test_after_a_training_that_failed_a_signal_does_what_it_did_before(
    store: Path, tmp_path: Path
) -> None:
    class Fails(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            raise ZeroDivisionError

    came: list[int] = []
    former = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        trained = stock(tmp_path, tiny.stream(store, count=16))
        trained.add_callback(Fails())
        with pytest.raises(ZeroDivisionError):
            trained.train()
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert came == [signal.SIGTERM]


@pytest.mark.parametrize("clipped", [1.0, 0.0])
@pytest.mark.parametrize("factor", [math.nan, math.inf, 1e30])
def test_a_gradient_that_is_not_finite_stops_before_the_update(
    factor: float, clipped: float, store: Path, tmp_path: Path
) -> None:
    """Clipping hides what overflows: the gradient is then 0."""
    trained = stock(tmp_path, tiny.stream(store, count=16), max_grad_norm=clipped)
    weight = trained.model.lm_head.weight
    weight.register_hook(lambda gradient: gradient * factor)
    before = weight.detach().clone()
    former = signal.getsignal(signal.SIGTERM)
    with pytest.raises(NotFinite, match=r"step 1: the norm .* windows 0 to 3"):
        trained.train()
    assert torch.equal(weight, before)
    assert signal.getsignal(signal.SIGTERM) is former


class Signals(TrainerCallback):  # type: ignore[misc]
    """Sends a signal, so many times, in the first step."""

    def __init__(self, number: int, times: int = 1) -> None:
        self.number, self.times = number, times

    def on_step_begin(self, *args: Any, **others: Any) -> None:
        for _ in range(self.times):
            os.kill(os.getpid(), self.number)


def signalled(store: Path, folder: Path, sent: Signals) -> tuple[BaseException, list[str]]:
    """What ended a training, and its checkpoints."""
    trained = stock(folder, tiny.stream(store, count=16))
    trained.add_callback(sent)
    both = (signal.SIGTERM, signal.SIGINT)
    former = list(map(signal.getsignal, both))
    with pytest.raises((SystemExit, KeyboardInterrupt)) as left:
        trained.train()
    assert list(map(signal.getsignal, both)) == former
    return left.value, [path.name for path in folder.glob("checkpoint-*")]


def test_sigterm_saves_after_the_step_and_exits_with_143(store: Path, tmp_path: Path) -> None:
    for times in (1, 2):
        ended, left = signalled(store, tmp_path / f"{times}", Signals(signal.SIGTERM, times))
        assert isinstance(ended, SystemExit)
        assert ended.code == 143
        assert left == ["checkpoint-1"]


def test_ctrl_c_saves_after_the_step_and_a_second_one_stops_at_once(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended, left = signalled(store, tmp_path / "once", Signals(signal.SIGINT))
    assert isinstance(ended, KeyboardInterrupt)
    assert left == ["checkpoint-1"]
    assert "finishing and saving this step; Ctrl-C again" in capfd.readouterr().err
    ended, left = signalled(store, tmp_path / "twice", Signals(signal.SIGINT, 2))
    assert isinstance(ended, KeyboardInterrupt)
    assert left == []


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")
def test_the_documented_diff_trains(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = load_tokenizer(BUNDLED_FOLDER)
    own = {"model": tiny.build(), "windows": tiny.stream(store), "tokenizer": tokenizer}
    stocks = {"Trainer": Trainer, "TrainingArguments": TrainingArguments}
    tiny.check_shown(" trainer = Trainer(", {**own, **stocks})


@pytest.mark.parametrize("part", ["class LongWindows", " trainer = SFTTrainer("])
def test_a_documented_diff_that_is_not_run_here_is_python(part: str) -> None:
    """TRL's runs in an environment of its own; axolotl is read from its source."""
    compile(tiny.shown(part), "training.md", "exec")
