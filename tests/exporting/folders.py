"""Tiny model folders to export, a gate that starts no process, and exports that it must refuse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.utils import logging

from ropewalk.agreement import Agreement
from ropewalk.exporting import folder, stock_run
from ropewalk.exporting.exported import Exported
from ropewalk.exporting.folder import Job
from ropewalk.models.config import load_config
from tests.models.tiny import WINDOW, tiny_model

TARGET = 4 * WINDOW


def answered_here(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """The gate's program, run without the process that it is meant for."""
    stock_run.answer(json.loads(Path(words[-1]).read_text(encoding="utf-8")))
    return subprocess.CompletedProcess(words, 0, "", "")


def proven(exported: Exported) -> Agreement:
    assert exported.agreement is not None
    return exported.agreement


def without_attention(place: Path) -> None:
    """Take the attention scaling out that the plan of a folder asks for."""
    config = load_config(place)
    config["rope_parameters"]["attention_factor"] = 1.0
    (place / "config.json").write_text(json.dumps(config))


def spoil_exports(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object] = without_attention
) -> None:
    """Every folder is written, and then changed."""
    write = folder.write

    def spoilt(job: Job, place: Path, *, shadow: bool = False) -> tuple[str, ...]:
        written = write(job, place, shadow=shadow)
        change(place)
        return written

    monkeypatch.setattr(folder, "write", spoilt)


def saved(
    place: Path, family: str = "llama", *, dtype: torch.dtype = torch.float32, **changes: Any
) -> str:
    """A tiny model on disk, in shards, with a tokenizer config that limits it to its window."""
    logging.disable_progress_bar()
    if family == "phi3":  # its config class takes no head size but this one
        changes = {"hidden_size": 64, **changes}
    tiny_model(family, **changes).to(dtype).save_pretrained(place, max_shard_size="24KB")
    limit = {"model_max_length": WINDOW}
    (place / "tokenizer_config.json").write_text(json.dumps(limit), encoding="utf-8")
    return str(place)
