"""What a stage reads: windows epoch after epoch, and how many tokens are behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk.data.store import TokenStore
from ropewalk.data.windows import Windows
from ropewalk.training.execution import Execution
from ropewalk.training.settings import StageSettings, TrainingSettings
from ropewalk.training.stage import StageJob
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


def test_mixed_windows_are_long_and_short_documents_by_turns(store: Path) -> None:
    """As in LongRoPE2: short documents stand apart, each from position 0, and fill as many tokens.

    So every row of a short window is within the original length, and one of a long window is not.
    """
    job = job_of(store, 4, mixed_windows=True)
    plain = job_of(store, 4).reading.windows
    original = job.plan.original_length
    windows = job.reading.windows
    for number in range(4 * BATCH):
        step, place = divmod(number, BATCH)
        window = windows[number]
        assert window.tokens.size == tiny.LENGTH
        if step % 2 == 0:
            expected = plain[step // 2 * BATCH + place]
            assert (window.tokens == expected.tokens).all()
            assert window.layout.positions.max() >= original
            continue
        layout = window.layout
        assert layout.positions.max() < original < tiny.LENGTH
        assert layout.document_lengths.max() <= original
        assert layout.anchor_length == 0
        starts = np.flatnonzero(np.diff(layout.document_ids, prepend=-9))
        assert (layout.positions[starts] == 0).all()
    assert job.reading.epochs == 2 * BATCH / job.reading.available


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
