"""Tiny models with layers that mix tokens outside attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_CONFIGS = json.loads(Path(__file__).with_suffix(".json").read_text())
HYBRIDS: dict[str, dict[str, Any]] = _CONFIGS["told"]
"""By family: the settings, and the parts that mix."""
DEAF: dict[str, dict[str, Any]] = _CONFIGS["not told"]
"""Families whose mixers are not told the layout."""


def built(family: str, **changes: Any) -> Any:
    settings = {**HYBRIDS, **DEAF}[family]["config"]
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**settings, "initializer_range": 0.2, **changes})
    return AutoModelForCausalLM.from_config(config).train()


def trainable(family: str) -> Any:
    """In sizes that the plan of tiny.py fits, and that two ranks divide."""
    return built(family, hidden_size=64, head_dim=16, max_position_embeddings=48)
