"""What a training run will take, from the model's config alone: operations, and room on disk."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ropewalk.evaluation.forward_time import Arithmetic
from ropewalk.models.config import Config

_FORWARDS = 3
"""A backward pass takes twice what its forward takes."""


def multiplications(config: Config, window: int) -> float:
    """Operations of training on one window: a multiplication and an addition each."""
    model = _empty(config)
    inner = model.config.get_text_config()
    heads = int(inner.num_attention_heads)
    head = int(getattr(inner, "head_dim", None) or inner.hidden_size // heads)
    weights = sum(weight.numel() for weight in model.parameters())
    if not inner.tie_word_embeddings:
        weights -= model.get_input_embeddings().weight.numel()
    own = Arithmetic(weights, int(inner.num_hidden_layers) * heads * head)
    return 2 * _FORWARDS * (own.by_weight(window) + own.by_position(window))


def float32_bytes(config: Config) -> int:
    count: int = sum(weight.numel() for weight in _empty(config).parameters())
    return count * torch.float32.itemsize


def _empty(config: Config) -> Any:
    """The model without its weights."""
    return _made(json.dumps(dict(config), sort_keys=True, default=str))


@lru_cache(maxsize=1)
def _made(text: str) -> Any:
    config = json.loads(text)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(
            AutoConfig.for_model(config.pop("model_type"), **config)
        )
