"""Models and modules with one known fault each, planted where such faults are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from ropewalk.context_plan import ContextPlan
from ropewalk.models.config import present_plan

ORIGINAL, TARGET = 4096, 32768
YARN = {
    "rope_type": "yarn",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "original_max_position_embeddings": ORIGINAL,
}
LISTS = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": ORIGINAL,
    "short_factor": [1.0 + 0.01 * i for i in range(32)],
    "long_factor": [1.0 + 0.2 * i for i in range(32)],
}


def llama(rope: dict[str, Any] | None = None, **changes: Any) -> Any:
    """Two layers with heads of 64 dimensions."""
    config = LlamaConfig(
        **{
            "vocab_size": 64,
            "hidden_size": 128,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": TARGET,
            "rope_parameters": dict(rope or YARN),
            **changes,
        }
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


def plan_of(rope: dict[str, Any] | None = None) -> ContextPlan:
    return present_plan(llama(rope).config)


class _Interleaved(nn.Module):
    """cos and sin with neighbours in place of halves."""

    def __init__(self, stock: Any) -> None:
        super().__init__()
        self.stock, self.config = stock, stock.config
        self.register_buffer("inv_freq", stock.inv_freq, persistent=False)

    def forward(self, x: Any, position_ids: Any) -> Any:
        pairs = self.stock.inv_freq.shape[0]
        return tuple(
            own[..., :pairs].repeat_interleave(2, dim=-1) for own in self.stock(x, position_ids)
        )


def _set(**values: Callable[[Any], Any]) -> Any:
    """A planned model, some attributes of whose rotary module are changed."""
    model = llama()
    rotary = model.model.rotary_emb
    for name, change in values.items():
        setattr(rotary, name, change(getattr(rotary, name)))
    return model


def _interleaved() -> Any:
    model = llama()
    model.model.rotary_emb = _Interleaved(model.model.rotary_emb)
    return model


def _twice() -> Any:
    plain = llama({"rope_type": "default", "rope_theta": 500000.0}).model.rotary_emb.inv_freq
    return _set(inv_freq=lambda own: own * own / plain, attention_scaling=lambda m: m * m)


FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "factor lost": (
        lambda: llama({"rope_type": "default", "rope_theta": 500000.0}),
        "no scaling",
    ),
    "factors lost, attention factor kept": (
        lambda: _set(inv_freq=lambda own: 500000.0 ** -(torch.arange(0, 64, 2) / 64)),
        "factors dropped",
    ),
    "applied twice": (_twice, "applied twice"),
    "another base": (lambda: llama({**YARN, "rope_theta": 10000.0}), "base"),
    "a base of no list": (lambda: llama({**YARN, "rope_theta": 123000.0}), "base: .* 123,000"),
    "another factor": (lambda: llama({**YARN, "factor": 4.0}), "factor"),
    "attention factor dropped": (
        lambda: _set(attention_scaling=lambda m: 1.0),
        "attention factor: like the plan without its attention factor",
    ),
    "attention factor squared": (
        lambda: _set(attention_scaling=lambda m: m * m),
        "attention factor: like the plan with its attention factor twice",
    ),
    "another attention factor": (
        lambda: _set(attention_scaling=lambda m: 1.5),
        "attention factor: 1.5 instead of 1.2079",
    ),
    "pairs interleaved": (_interleaved, "pairs: interleaved instead of half"),
    "rounded to bfloat16": (
        lambda: llama().to(torch.bfloat16),
        "inverse frequencies rounded to bfloat16",
    ),
    "slow pairs twice as fast": (
        lambda: _set(inv_freq=lambda own: torch.cat((own[:20], 2 * own[20:]))),
        "no known fault gives these angles$",
    ),
    "wrong original length": (
        lambda: llama({**YARN, "original_max_position_embeddings": 2 * ORIGINAL}),
        "original length",
    ),
    "wrong rotary dimension": (
        lambda: llama({**YARN, "partial_rotary_factor": 0.5}, head_dim=64),
        "rotary dimension",
    ),
}
"""How each is planted in a model of transformers, and the cause that must be named."""
