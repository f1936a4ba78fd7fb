"""Tiny models with layers that mix tokens outside attention."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_COMMON = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "pad_token_id": 0}
_HEADS = {
    **_COMMON,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "eos_token_id": 2,
}
_LINEAR = {
    **_HEADS,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_MAMBA = {**_HEADS, "mamba_n_heads": 4, "mamba_d_state": 8, "mamba_n_groups": 1}
_MAMBA = {**_MAMBA, "mamba_chunk_size": 8}
_LINEAR_PARTS = [f"model.layers.{layer}.linear_attn" for layer in range(3)]
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

HYBRIDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "qwen3_next": (
        {**_LINEAR, **_EXPERTS, "shared_expert_intermediate_size": 16},
        _LINEAR_PARTS,
    ),
    "qwen3_5_text": (_LINEAR, _LINEAR_PARTS),
    "olmo_hybrid": (_LINEAR, _LINEAR_PARTS),
    "falcon_h1": (
        {**_MAMBA, "num_hidden_layers": 2, "mamba_d_ssm": 32, "mamba_d_head": 8},
        ["model.layers.0.mamba", "model.layers.1.mamba"],
    ),
    "lfm2": (
        {**_HEADS, "num_hidden_layers": 3, "full_attn_idxs": [2]},
        ["model.layers.0.conv", "model.layers.1.conv"],
    ),
    "bamba": (
        {**_MAMBA, "num_hidden_layers": 3, "attn_layer_indices": [1], "mamba_d_head": 16},
        ["model.layers.0.mamba", "model.layers.2.mamba"],
    ),
    "granitemoehybrid": (
        {
            **_MAMBA,
            "num_hidden_layers": 3,
            "layer_types": ["mamba", "attention", "mamba"],
            "mamba_d_head": 16,
            "num_local_experts": 0,
            "shared_intermediate_size": 32,
            "position_embedding_type": "rope",
        },
        ["model.layers.0.mamba", "model.layers.2.mamba"],
    ),
}
"""By family: the settings, and the parts that mix."""

DEAF: dict[str, tuple[dict[str, Any], str]] = {
    "mamba": (
        {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        "backbone.layers.0.mixer, backbone.layers.1.mixer",
    ),
    "jamba": (
        {
            **_HEADS,
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "mamba_d_state": 8,
        },
        "model.layers.0.mamba, model.layers.2.mamba",
    ),
}
"""Families whose mixers are not told the layout."""


def built(family: str, **changes: Any) -> Any:
    settings = {**HYBRIDS, **DEAF}[family][0]
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**settings, "initializer_range": 0.2, **changes})
    return AutoModelForCausalLM.from_config(config).train()


def trainable(family: str) -> Any:
    """In sizes that the plan of tiny.py fits, and that two ranks divide."""
    return built(family, hidden_size=64, head_dim=16, max_position_embeddings=48)
