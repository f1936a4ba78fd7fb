"""Writes the folder of a set-up (a config, random weights, a tokenizer), and copies it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from tools.bakeoff.fault import Config, written

WORDS = 120
LENGTH = 4096
"""The length for which every set-up is meant."""


def model_class(config: Config) -> Any:
    """The automatic class that loads a set-up."""
    pictures = config["model_type"] == "qwen3_vl"
    return AutoModelForImageTextToText if pictures else AutoModelForCausalLM


def write(config: Config, folder: Path, *, tokenizer_length: int = LENGTH) -> None:
    """A folder with the intended set-up; its weights are so large that attention isn't uniform."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(written(config), encoding="utf-8")
    torch.manual_seed(0)
    model = model_class(config).from_config(AutoConfig.from_pretrained(folder)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.normal_(std=0.2 if weight.ndim > 1 else 0.1)
    model.save_pretrained(folder)
    stated = {**config, "architectures": [type(model).__name__]}
    (folder / "config.json").write_text(written(stated), encoding="utf-8")
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}', encoding="utf-8")
    vocabulary = {"<end>": 0, **{f"w{i}": i + 1 for i in range(WORDS)}}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<end>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    setting = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": tokenizer_length,
        "eos_token": "<end>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(setting), encoding="utf-8")


def copy(source: Path, folder: Path) -> Path:
    """The same folder again; its weights are links."""
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.suffix == ".safetensors":
            (folder / file.name).hardlink_to(file)
        else:
            shutil.copy(file, folder)
    return folder
