"""What a training run will take, from the model's config alone: operations, and room on disk."""

from __future__ import annotations

import torch

from ropewalk.costs.sizes import empty_model
from ropewalk.evaluation.forward_time import Arithmetic
from ropewalk.models.config import Config

_FORWARDS = 3
"""A backward pass takes twice what its forward takes."""


def multiplications(config: Config, window: int) -> float:
    """Operations of training on one window: a multiplication and an addition each."""
    model = empty_model(config)
    inner = model.config.get_text_config()
    heads = int(inner.num_attention_heads)
    head = int(getattr(inner, "head_dim", None) or inner.hidden_size // heads)
    weights = sum(weight.numel() for weight in model.parameters())
    if not inner.tie_word_embeddings:
        weights -= model.get_input_embeddings().weight.numel()
    own = Arithmetic(weights, int(inner.num_hidden_layers) * heads * head)
    return 2 * _FORWARDS * (own.by_weight(window) + own.by_position(window))


def float32_bytes(config: Config) -> int:
    count: int = sum(weight.numel() for weight in empty_model(config).parameters())
    return count * torch.float32.itemsize
