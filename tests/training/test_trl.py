"""Collator and callback in TRL's `SFTTrainer`, as docs/training.md shows it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ropewalk.context_plan import ContextPlan
from ropewalk.training.callback import RopewalkCallback
from ropewalk.training.collator import WindowCollator
from tests.evaluation.tiny import tokenizer
from tests.training import tiny

trl = pytest.importorskip("trl", reason="make test-trl has it")


@pytest.mark.filterwarnings("ignore")  # of TRL's own
@pytest.mark.parametrize("checkpointing", [False, True])
def test_it_trains_as_a_plain_loop(checkpointing: bool, store: Path, tmp_path: Path) -> None:
    import datasets

    windows = tiny.stream(store, count=16)
    collate = WindowCollator()
    shared = tiny.arguments(tmp_path, 3).to_dict()
    kept = ("output_dir", "use_cpu", "max_steps", "per_device_train_batch_size", "learning_rate",
            "gradient_accumulation_steps", "lr_scheduler_type", "weight_decay", "adam_beta2",
            "adam_epsilon", "logging_steps", "save_strategy", "disable_tqdm")  # fmt: skip
    own: dict[str, Any] = {key: shared[key] for key in kept}
    trained = trl.SFTTrainer(
        tiny.build(),
        args=trl.SFTConfig(
            **own,
            report_to=[],
            bf16=False,
            gradient_checkpointing=checkpointing,
            train_sampling_strategy="sequential",
            remove_unused_columns=False,
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
        train_dataset=datasets.Dataset.from_dict({"window": range(len(windows))}),
        data_collator=lambda rows: collate([windows[row["window"]] for row in rows]),
        processing_class=tokenizer(),
        callbacks=[RopewalkCallback(tiny.plan(), final=tmp_path / "final")],
    )
    trained.train()
    tiny.check_course(trained, windows, 3, tmp_path / "final")


@pytest.mark.filterwarnings("ignore")
def test_the_documented_diff_trains(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.chdir(tmp_path)
    model = tiny.build()
    model.save_pretrained("model")
    tokenizer().save_pretrained("model")  # SFTTrainer reads it where the model is from
    model.config._name_or_path = "model"
    names = {
        "Dataset": datasets.Dataset,
        "model": model,
        "SFTTrainer": trl.SFTTrainer,
        "SFTConfig": partial(trl.SFTConfig, bf16=False),
        "ContextPlan": ContextPlan,
        "RopewalkCallback": RopewalkCallback,
        "WindowCollator": WindowCollator,
        "windows": tiny.stream(store),
    }
    tiny.check_shown(" trainer = SFTTrainer(", names)
