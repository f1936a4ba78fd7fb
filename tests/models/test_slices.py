"""A model without its weights, which it then reads; on several ranks: tests/training/sharded.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ropewalk.errors import InputError
from ropewalk.models.load import read_model
from ropewalk.models.slices import Empty, without_weights
from ropewalk.training.saving import with_adapter
from tests.training import tiny
from tests.training.hybrids import trainable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.build(tie_word_embeddings=True).save_pretrained(tmp_path)
    return tmp_path


def compare(model: Any, other: Any) -> None:
    for kind in ("named_parameters", "named_buffers"):
        mine, theirs = (dict(getattr(own, kind)()) for own in (model, other))
        assert mine.keys() == theirs.keys()
        for name, own in mine.items():
            assert own.dtype == theirs[name].dtype, name
            assert own.requires_grad == theirs[name].requires_grad, name
            assert torch.equal(own, theirs[name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_empty_until_it_reads_what_loading_gives(folder: Path, dtype: torch.dtype) -> None:
    empty = without_weights(folder, dtype)
    assert isinstance(empty, Empty)
    assert all(own.is_meta for own in empty.model.parameters())
    empty.read()
    assert empty.model.lm_head.weight is empty.model.model.embed_tokens.weight
    compare(empty.model, read_model(folder, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_around_it_is_the_one_that_a_whole_model_gets(
    folder: Path, dtype: torch.dtype
) -> None:
    """Adapters stay in float32 around weights in bfloat16."""
    empty = without_weights(folder, dtype)
    assert isinstance(empty, Empty)
    with empty.standing_in():
        model = with_adapter(empty.model, 4, seed=3)
    assert {own.is_meta for name, own in model.named_parameters() if "lora_" in name} == {False}
    empty.read()
    whole = with_adapter(read_model(folder, dtype), 4, seed=3)
    compare(model, whole)
    trained = {own.dtype for own in model.parameters() if own.requires_grad}
    assert trained == {torch.float32}


def test_names_that_are_not_those_of_the_files_are_said(folder: Path) -> None:
    """transformers renames what was written from the body alone, and no slice would be found."""
    path = folder / "model.safetensors"
    weights = {name.removeprefix("model."): own for name, own in load_file(path).items()}
    save_file(weights, path, {"format": "pt"})
    read_model(folder, torch.float32)
    said = without_weights(folder, torch.float32)
    assert isinstance(said, str)
    assert "other names or shapes than the model (model.embed_tokens.weight" in said


def test_experts_that_transformers_merges_are_said(tmp_path: Path) -> None:
    trainable("qwen3_next").save_pretrained(tmp_path)
    said = without_weights(tmp_path, torch.float32)
    assert isinstance(said, str)
    assert "transformers converts weights of its files" in said


def test_files_without_a_tensor_of_the_config_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(InputError, match=r"no file holds 9 tensors that the config asks for"):
        without_weights(folder, torch.float32)
