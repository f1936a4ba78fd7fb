"""What a stage reads: windows epoch after epoch, and how many tokens are behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk.data.store import TokenStore
from ropewalk.data.windows import Windows
from ropewalk.training.settings import StageSettings, TrainingSettings
from ropewalk.training.stage import Execution, StageJob
from tests.training import tiny

BATCH = 4


def job_of(store: Path, steps: int, **more: Any) -> StageJob:
    stage = StageSettings(tiny.TARGET, tiny.LENGTH, steps)
    settings = TrainingSettings((stage,), batch=BATCH, learning_rate=1e-3, **more)
    opened = TokenStore(store)
    return StageJob(
        *(store, tiny.plan("linear"), opened, tiny.SPECIAL, stage, settings, Execution("cpu")),
        store / "stage",
    )


def test_each_epoch_is_packed_anew(store: Path) -> None:
    """The windows that a training reads are those of the epochs, each with its own order."""
    job = job_of(store, 40)
    own = job.settings.windows(job.stage)
    epochs = [Windows(job.store, own, tiny.SPECIAL, epoch) for epoch in range(3)]
    expected = [window for epoch in epochs for window in epoch]
    read = job.reading
    assert len(epochs[0]) < len(read.windows) <= len(expected)
    for found, wanted in zip(read.windows, expected, strict=False):
        np.testing.assert_array_equal(found.tokens, wanted.tokens)
        np.testing.assert_array_equal(found.labels, wanted.labels)
        assert found.layout == wanted.layout
    first, second = (np.concatenate([each.tokens for each in epoch]) for epoch in epochs[:2])
    assert first.shape != second.shape or (first != second).any()
    assert read.available == len(epochs[0])
    assert read.epochs == len(read.windows) / len(epochs[0])
    assert read.tokens(7) == 7 * BATCH * tiny.LENGTH


def test_mixed_windows_count_the_tokens_of_both_lengths(store: Path) -> None:
    job = job_of(store, 5, mixed_windows=True)
    original = job.plan.original_length
    assert original < tiny.LENGTH
    lengths = [job.reading.windows[step * BATCH].tokens.size for step in range(5)]
    assert lengths == [tiny.LENGTH, original, tiny.LENGTH, original, tiny.LENGTH]
    read = [job.reading.tokens(step) for step in range(6)]
    assert read == [BATCH * sum(lengths[:step]) for step in range(6)]


def test_what_a_stage_reads_is_computed_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    pack = Windows.__init__

    def counted(self: Windows, *args: Any) -> None:
        packed.append(1)
        pack(self, *args)

    monkeypatch.setattr(Windows, "__init__", counted)
    job = job_of(store, 2)
    assert job.reading.windows[0].tokens.size == tiny.LENGTH
    once = len(packed)
    assert job.reading.epochs > 0
    assert len(packed) == once
