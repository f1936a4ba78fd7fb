"""Tiny model folders to export, and a gate that starts no process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from ropewalk.export import stock_run
from tests.models.tiny import WINDOW, tiny_model

TARGET = 4 * WINDOW


def answered_here(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """The gate's program, run without the process that it is meant for."""
    stock_run.answer(json.loads(Path(command[-1]).read_text(encoding="utf-8")))
    return subprocess.CompletedProcess(command, 0, "", "")


def saved(
    folder: Path, family: str = "llama", *, dtype: torch.dtype = torch.float32, **changes: Any
) -> str:
    """A tiny model on disk, in shards, with a tokenizer config that limits it to its window."""
    logging.disable_progress_bar()
    if family == "phi3":  # its config class takes no head size but this one
        changes = {"hidden_size": 64, **changes}
    tiny_model(family, **changes).to(dtype).save_pretrained(folder, max_shard_size="24KB")
    limit = {"model_max_length": WINDOW}
    (folder / "tokenizer_config.json").write_text(json.dumps(limit), encoding="utf-8")
    return str(folder)
