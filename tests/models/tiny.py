"""Tiny random models of many families, large enough in their logits that a wrong schedule shows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

WINDOW = 16
"""The pretrained length of every tiny model."""
VOCABULARY = 64

_CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())
COMMON = _CONFIGS["common"]
"""What every family takes."""
FAMILIES = _CONFIGS["families"]
"""What each family needs besides `common`; the rest is as its config class says."""
RECENT = _CONFIGS["recent"]
"""Families of the last years, which need more of install than the others do."""
SMALL = _CONFIGS["small"]
"""What any config class takes, for a model that is used with the weights it is made with."""


def tiny_config(family: str, **changes: Any) -> Any:
    own = {**FAMILIES, **RECENT}.get(family, {})
    return AutoConfig.for_model(family, **{**COMMON, **own, **changes})


STRUCTURES = (
    *("llama", "gemma3_text", "gpt_neox", "mixtral", "deepseek_v3", "gpt_oss", "smollm3"),
    *("qwen2", "qwen3", "apertus"),
)
"""Families of different structure: windows, partial rotation, experts, latents, sinks, layers
without positions, biases, normalized heads. The others are variants of these."""


def thinned(families: Iterable[str], *others: Any) -> list[Any]:
    """Families of different structure in the fast suite, all of them in the slow one."""
    return [
        pytest.param(*(family, *others), marks=() if family in STRUCTURES else pytest.mark.slow)
        for family in families
    ]


def tiny_model(family: str = "llama", *, seed: int = 0, **changes: Any) -> Any:
    """A model of a family with weights so large that attention is far from uniform."""
    return model_of(tiny_config(family, **changes), seed=seed)


def model_of(config: Any, *, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.normal_(std=0.3 if weight.ndim > 1 else 0.1)
    return model


def tokens(length: int, *, rows: int = 1, seed: int = 0) -> torch.Tensor:
    """Random token ids that no model takes for padding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (rows, length), generator=generator)
