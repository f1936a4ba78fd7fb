"""The start of a training run: a model known by its content, or random weights for a config."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from ropewalk.errors import InputError, first_line
from ropewalk.evaluation.encoding import Encoder
from ropewalk.exporting.manifest import Manifest
from ropewalk.exporting.staging import staged
from ropewalk.models.config import for_stock_class
from ropewalk.models.load import checked_weights, load_tokenizer
from ropewalk.models.source import Source

_ORIGIN = ("_name_or_path", "transformers_version")


def config_sha256(source: Source) -> str:
    own = {key: value for key, value in source.config.items() if key not in _ORIGIN}
    return hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode()).hexdigest()


def weights_sha256(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in checked_weights(folder):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def tokenizer_sha256(source: Source) -> str:
    return Encoder(_tokenizer_of(source)).sha256


def _tokenizer_of(source: Source) -> Any:
    place = source.path if source.kind in ("folder", "bundled") else None
    if place is None:
        raise InputError(
            f"{source.name}: holds no tokenizer, and its text could not be read; name a model "
            "folder whose tokenizer to use (`tokenizer`)"
        )
    return load_tokenizer(place)


def write_start(source: Source, tokenizer: Source, folder: Path, seed: int) -> None:
    """A model folder with random weights, drawn as the model's class draws them."""
    if (folder / "config.json").is_file():
        return
    from transformers import AutoConfig, AutoModelForCausalLM

    config = dict(source.config)
    kind = config.pop("model_type", None)
    try:
        own = AutoConfig.for_model(kind, **for_stock_class(config))
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(own, dtype=torch.float32)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{source.name}: transformers cannot build it: {first_line(error)}"
        ) from None
    words = _tokenizer_of(tokenizer)
    Encoder(words, int(model.get_input_embeddings().weight.shape[0])).batch(
        [words.decode([len(words) - 1])]
    )
    size = sum(weight.nbytes for weight in model.parameters())
    with staged(folder, needs_bytes=size, overwrite=True) as staging:
        model.save_pretrained(str(staging))
        words.save_pretrained(str(staging))
        Manifest.of(staging).write(staging)
