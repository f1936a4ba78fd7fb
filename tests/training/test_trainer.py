"""The trainer on one process: what it learns, what it refuses, and how it goes on."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer

from ropewalk.context_plan import ContextPlan
from ropewalk.data.windows import Arrangement, Window
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.models.config import load_config, present_plan
from ropewalk.training import checkpoint
from ropewalk.training.callback import NotFinite, RopewalkCallback
from ropewalk.training.collator import WindowCollator
from ropewalk.training.execution import Division
from tests.mutants.damage import flip
from tests.training import tiny
from tests.training.sharded import with_lora

# peft asks transformers 5.23 by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")


ARRANGEMENTS = [
    pytest.param(each, marks=pytest.mark.slow if each in ("bookends", "intra", "reset") else ())
    for each in get_args(Arrangement)
]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_any_arrangement_trains_as_a_plain_loop(
    arrangement: Arrangement, store: Path, tmp_path: Path
) -> None:
    windows = tiny.stream(store, arrangement)
    trained = tiny.trainer(tmp_path, windows, 3)
    trained.train()
    tiny.check_alike(tiny.course(trained), tiny.oracle(windows, 3))


@pytest.mark.parametrize("weighted", [False, True])
def test_how_a_step_is_cut_into_batches_does_not_count(
    weighted: bool, store: Path, tmp_path: Path
) -> None:
    """Windows differ in their targets, so a mean over batches would be another number."""
    windows: Any = tiny.weighted(tiny.stream(store)) if weighted else tiny.stream(store)
    expected = tiny.oracle(windows, 2)
    cut: list[dict[str, Any]] = [
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1},
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2,
         "dataloader_num_workers": 2},
    ]  # fmt: skip
    for i, changes in enumerate(cut):
        trained = tiny.trainer(tmp_path / str(i), windows, 2, **changes)
        trained.train()
        tiny.check_alike(tiny.course(trained), expected)


def test_weights_that_a_loss_would_leave_out_are_refused(store: Path) -> None:
    windows = tiny.weighted(tiny.stream(store), 2)
    with pytest.raises(Unsupported, match="weights"):
        WindowCollator()(windows)


def saved(folder: Path, windows: Any, steps: int = 3, **changes: Any) -> Any:
    """A trainer that trained, with a checkpoint at every step."""
    trained = tiny.trainer(folder, windows, steps, save_strategy="steps", save_steps=1, **changes)
    trained.train()
    return trained


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps, a checkpoint of each."""
    folder = tmp_path_factory.mktemp("run") / "run"
    saved(folder, tiny.stream(store))
    return folder


def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink()


def shard_of(folder: Path) -> Path:
    return next(folder.glob("shard-*"))


def edit_state(folder: Path, **changes: object) -> None:
    path = folder / checkpoint.STATE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn": (
        lambda own: (own / checkpoint.STATE).unlink(),
        "is not a complete checkpoint; complete ones next to it: ",
    ),
    "half removed": (
        lambda own: remove(own.glob("*.json")),
        "is not a complete checkpoint; complete",
    ),
    "no shard": (
        lambda own: shard_of(own).unlink(),
        "is missing, or not a regular file; remove this",
    ),
    "a flipped bit": (lambda own: flip(shard_of(own), -1), "is damaged; remove this checkpoint"),
    "a log that was edited": (
        lambda own: (own / "trainer_state.json").write_text("{}"),
        "trainer_state.json: is damaged",
    ),
    "a shard of another run": (
        lambda own: shutil.copy(shard_of(own), own / "shard-00009-model.safetensors"),
        "is not of this checkpoint",
    ),
    "another format": (lambda own: edit_state(own, format="2"), "that this version reads"),
    "a path that leads out": (
        lambda own: edit_state(own, files={"../run/x": "0"}),
        "is missing, or not a regular file",
    ),
    "a rate that was edited": (lambda own: edit_state(own, groups=[]), "json: is damaged"),
    "no JSON": (lambda own: (own / checkpoint.STATE).write_text("{"), "is not JSON"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_refused(
    damage: str, run: Path, store: Path, tmp_path: Path
) -> None:
    folder = copied(run, tmp_path)
    harm, says = DAMAGE[damage]
    own = folder / "checkpoint-2"
    if damage == "torn":
        shutil.rmtree(folder / "checkpoint-3")
        shutil.copytree(folder / "checkpoint-2", folder / "checkpoint-3")
        own = folder / "checkpoint-3"
    harm(own)
    trained = tiny.trainer(folder, tiny.stream(store), 3)
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        trained.train(str(own))
    if damage == "torn":  # the last that is whole
        assert trained._checkpoint_named(True) == folder / "checkpoint-2"


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "another width": (lambda: tiny.build(hidden_size=64), "in 63 of 63 tensors|is .* there, and"),
    "fewer layers": (lambda: tiny.build(num_hidden_layers=1), "there, and absent here"),
    "more layers": (lambda: tiny.build(num_hidden_layers=3), "is absent there"),
    "another type": (lambda: tiny.build().to(torch.bfloat16), "in float32 there, and .* bfloat16"),
    "an adapter": (lambda: with_lora(), "other frozen weights"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_models_checkpoint_is_refused(
    other: str, run: Path, store: Path, tmp_path: Path
) -> None:
    build, says = OTHERS[other]
    model = build()
    trained = tiny.trainer(tmp_path, tiny.stream(store), 3, model=model)
    with pytest.raises(InputError, match=says):
        trained.train(str(run / "checkpoint-2"))


def test_another_way_to_count_windows_or_another_plan_or_data_is_refused(
    run: Path, store: Path, tmp_path: Path
) -> None:
    windows = tiny.stream(store)
    with pytest.raises(InvalidValue, match="was trained with 4, so the next windows would differ"):
        tiny.trainer(tmp_path, windows, 3, gradient_accumulation_steps=2).train(
            str(run / "checkpoint-2")
        )
    with pytest.raises(InputError, match="step 2 was trained with another data"):
        tiny.trainer(tmp_path, windows, 3, data={"seed": 2}).train(str(run / "checkpoint-2"))
    trained = tiny.trainer(tmp_path, windows, 3)
    trained.remove_callback(RopewalkCallback)
    trained.add_callback(RopewalkCallback(tiny.plan("linear")))
    with pytest.raises(InputError, match="step 2 was trained with another plan"):
        trained.train(str(run / "checkpoint-2"))


def test_a_run_that_goes_on_is_the_run(run: Path, store: Path, tmp_path: Path) -> None:
    """From any step, also from the last, which trains nothing more; to the last byte."""
    folder = copied(run, tmp_path)
    last = {path.name: path.read_bytes() for path in (run / "checkpoint-3").iterdir()}
    for step in (1, 3):
        trained = tiny.trainer(folder, tiny.stream(store), 3, save_strategy="steps", save_steps=1)
        trained.train(str(folder / f"checkpoint-{step}"))
        assert trained.state.global_step == 3
        again = {path.name: path.read_bytes() for path in (folder / "checkpoint-3").iterdir()}
        assert [name for name in last if again.get(name) != last[name]] == []
        assert len(again) == len(last) == 3


def test_leftovers_of_killed_processes_are_removed(run: Path, store: Path, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    part = checkpoint._part_of(folder / "checkpoint-9")
    part.mkdir()
    away = folder / f"{checkpoint._part_of(folder / 'checkpoint-2').name}.replaced"
    (folder / "checkpoint-2").rename(away)  # killed before the new one got its name
    trained = tiny.trainer(folder, tiny.stream(store), 3)
    trained.train(str(folder / "checkpoint-2"))
    assert sorted(path.name for path in folder.iterdir()) == [f"checkpoint-{i}" for i in (1, 2, 3)]


def test_a_checkpoint_of_the_stock_trainer_is_gone_on_with(store: Path, tmp_path: Path) -> None:
    """Its data in the same order: the stock one shuffles, unless it is told not to."""
    windows = tiny.stream(store, count=16)

    class InOrder(Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(windows)

    model = tiny.build()
    stock = InOrder(
        model,
        tiny.arguments(tmp_path, 4, save_strategy="steps", save_steps=2),
        train_dataset=windows,
        data_collator=WindowCollator(),
        callbacks=[RopewalkCallback(tiny.plan())],
    )
    stock.train()
    trained = tiny.trainer(tmp_path, windows, 4)
    trained.train(str(tmp_path / "checkpoint-2"))
    lines = [line["loss"] for line in stock.state.log_history if "loss" in line]
    assert tiny.course(trained).losses == pytest.approx(lines, abs=1e-6)
    assert len(lines) == 4


def test_only_the_last_checkpoints_stay(store: Path, tmp_path: Path) -> None:
    saved(tmp_path, tiny.stream(store), save_total_limit=2)
    assert [path.name for path in checkpoint.checkpoints_in(tmp_path)] == [
        "checkpoint-2",
        "checkpoint-3",
    ]


def test_older_checkpoints_that_a_killed_process_left_go(
    run: Path, store: Path, tmp_path: Path
) -> None:
    """It was killed between its last checkpoint and the removal of the first."""
    folder = copied(run, tmp_path)
    tiny.trainer(folder, tiny.stream(store), 3, save_total_limit=2).train(True)
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["checkpoint-2", "checkpoint-3"]


def test_weights_that_are_not_trained_stay_and_are_not_saved(store: Path, tmp_path: Path) -> None:
    model = tiny.build()
    model.get_input_embeddings().weight.requires_grad_(False)
    before = model.get_input_embeddings().weight.clone()
    trained = saved(tmp_path, tiny.stream(store), 2, model=model)
    assert torch.equal(model.get_input_embeddings().weight, before)
    names = set(checkpoint._known(tmp_path / "checkpoint-2", "model."))
    assert "model.model.embed_tokens.weight" not in names
    assert "model.lm_head.weight" in names
    again = tiny.trainer(tmp_path, tiny.stream(store), 2, model=tiny.build())
    with pytest.raises(InputError, match="other frozen weights"):
        again.train(str(tmp_path / "checkpoint-1"))
    assert trained.state.global_step == 2


@pytest.mark.parametrize(
    ("value", "clipped"),
    [
        (math.nan, 1.0),
        (math.inf, 0.0),
        pytest.param(math.nan, 0.0, marks=pytest.mark.slow),
        pytest.param(math.inf, 1.0, marks=pytest.mark.slow),
    ],
)
def test_what_is_not_finite_stops_before_the_update(
    value: float, clipped: float, store: Path, tmp_path: Path
) -> None:
    windows = [tiny.stream(store)[i] for i in range(12)]
    for i, window in enumerate(windows):
        windows[i] = window._replace(tokens=window.tokens.clip(0, 62))
    windows[6].tokens[9] = 63
    model = tiny.build()
    with torch.no_grad():
        model.get_input_embeddings().weight[63] = value
    trained = tiny.trainer(tmp_path, windows, 3, model=model, max_grad_norm=clipped)
    after_one: list[torch.Tensor] = []

    class Keep(RopewalkCallback):
        def on_step_end(self, *args: Any, **others: Any) -> None:
            after_one.append(model.lm_head.weight.detach().clone())

    trained.add_callback(Keep(tiny.plan()))
    with pytest.raises(NotFinite, match="step 2: the loss is nan in window 6; the update was not"):
        trained.train()
    assert len(after_one) == 1
    assert torch.equal(model.lm_head.weight, after_one[0])


def test_a_gradient_that_overflows_stops_before_the_update(store: Path, tmp_path: Path) -> None:
    """The loss is finite, and so is each gradient, but not the sum of their squares."""
    trained = tiny.trainer(tmp_path, tiny.stream(store), 2)
    trained.model.lm_head.weight.register_hook(lambda gradient: gradient * 1e30)
    before = trained.model.lm_head.weight.detach().clone()
    with pytest.raises(NotFinite, match="the gradient's norm is inf in windows 0 to 3"):
        trained.train()
    assert torch.equal(trained.model.lm_head.weight, before)


def test_bfloat16_rounds_the_computation_and_keeps_the_weights(store: Path, tmp_path: Path) -> None:
    windows = tiny.stream(store)
    trained = tiny.trainer(tmp_path, windows, 2, bf16=True)
    trained.train()
    exact = tiny.oracle(windows, 2).losses
    rounded = tiny.course(trained).losses
    assert rounded != exact
    assert rounded == pytest.approx(exact, abs=0.02)
    assert {own.dtype for own in trained.model.parameters()} == {torch.float32}


def test_the_model_is_written_with_its_plan(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained = saved(run, tiny.stream(store), 2, keep=(1,), final=run / "final")
    for folder in (run / "evaluate" / "step-1", run / "final"):
        loaded = AutoModelForCausalLM.from_pretrained(folder)
        assert loaded.config.rope_parameters["rope_type"] == "yarn"
        own = json.loads((folder / "plan.json").read_text())
        assert ContextPlan.from_json(own) == tiny.plan()
    assert torch.equal(loaded.lm_head.weight, trained.model.lm_head.weight)
    trained.save_model()  # the script's own call; again, and not over the checkpoints
    assert len(checkpoint.checkpoints_in(run)) == 2
    present = present_plan(load_config(run / "final" / "config.json"))
    assert present.longest().length == tiny.TARGET
    tiny.trainer(run, tiny.stream(store), 2, keep=(1,), final=run / "final").train()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "deepspeed": ({"fsdp": "full_shard"}, "use `division`"),
    "labels smoothed": ({"label_smoothing_factor": 0.1}, "label_smoothing_factor is not for"),
    "liger": ({"use_liger_kernel": True}, "use_liger_kernel is not for"),
    "compiled": ({"torch_compile": True}, "torch_compile is not for"),
    "evaluated": ({"eval_strategy": "steps", "eval_steps": 1}, "does not evaluate"),
    "weights of ranks": (
        {"average_tokens_across_devices": False},
        "weight targets differently on each rank",
    ),
    "an optimizer in 8 bits": ({"optim": "adafactor"}, "must be one whose state can be divided"),
    "epochs": ({"max_steps": -1}, "the windows are read once"),
    "no weights in checkpoints": ({"save_only_model": True}, "save_only_model is not for"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_settings_that_would_not_do_what_they_say_are_refused(
    what: str, store: Path, tmp_path: Path
) -> None:
    changes, says = REFUSED[what]
    with pytest.raises(RopewalkError, match=says):
        tiny.trainer(tmp_path, tiny.stream(store), 2, **changes)


def test_too_few_windows_are_refused(store: Path, tmp_path: Path) -> None:
    short = tiny.stream(store, count=7)
    for changes, steps in (({}, 2), ({"gradient_accumulation_steps": 8}, 1)):
        trained = tiny.trainer(tmp_path, short, steps, **changes)
        with pytest.raises(InputError, match="7 windows are too few for"):
            trained.train()
    every = tiny.trainer(tmp_path, short, -1, num_train_epochs=1)
    every.train()
    assert every.state.global_step == 1


def test_other_refusals(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = tiny.stream(store)
    with pytest.raises(InvalidValue, match="must be the number of ranks, 1"):
        tiny.trainer(tmp_path, windows, 2, division=Division(2))
    prompted = peft.get_peft_model(
        tiny.build(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    )
    with pytest.raises(Unsupported, match="add tokens"):
        tiny.trainer(tmp_path, windows, 2, model=prompted)
    with pytest.raises(InputError, match="holds no checkpoint"):
        tiny.trainer(tmp_path, windows, 2).train(True)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    trained = tiny.trainer(tmp_path, windows, 2, save_strategy="steps", save_steps=1)
    with pytest.raises(InputError, match="2 checkpoints and the models that are kept needs up to"):
        trained.train()


def test_no_documents_of_a_window_are_seen_without_the_callback(
    store: Path, tmp_path: Path
) -> None:
    """The trainer alone makes the model heed layouts: stock attention would not read them."""
    windows: Any = tiny.stream(store)
    trained = tiny.trainer(tmp_path, windows, 1)
    assert trained.model.config._attn_implementation == "ropewalk"
    assert isinstance(windows[0], Window)


def test_checkpoints_stand_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / checkpoint.STATE).touch()
    names = [path.name for path in checkpoint.checkpoints_in(tmp_path)]
    assert names == ["checkpoint-9", "checkpoint-10", "checkpoint-100"]
