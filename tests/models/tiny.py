"""Tiny random models of many families, large enough in their logits that a wrong schedule shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

WINDOW = 16
"""The pretrained length of every tiny model."""
VOCABULARY = 64

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": WINDOW,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
_TWO_TYPES: dict[str, Any] = {
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": 12,
}
_LATENT: dict[str, Any] = {
    "head_dim": 8,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
_LINEAR: dict[str, Any] = {
    "num_hidden_layers": 3,
    "layer_types": ["full_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
# What each family needs besides; the rest is as its config class says.
FAMILIES: Mapping[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 12},
    "qwen2": {},
    "qwen3": {},
    "gemma2": {**_TWO_TYPES, "query_pre_attn_scalar": 16},
    "gemma3_text": {**_TWO_TYPES, "query_pre_attn_scalar": 16},
    "phi3": {"original_max_position_embeddings": WINDOW},
    "gpt_neox": {"hidden_size": 64, "rotary_pct": 0.5},
    "olmo2": {},
    "olmo3": _TWO_TYPES,
    "stablelm": {"hidden_size": 64, "partial_rotary_factor": 0.5, "qk_layernorm": True},
    "cohere": {"use_qk_norm": True},
    "granite": {"attention_multiplier": 0.25},
    "mixtral": _EXPERTS,
    "deepseek_v3": _LATENT,
    "smollm3": {"num_hidden_layers": 4, "no_rope_layer_interval": 4},
    "gpt_oss": {
        **_EXPERTS,
        "num_hidden_layers": 2,
        "sliding_window": 12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0},
    },
    "starcoder2": {},
    "phimoe": _EXPERTS,
}
# Families of the last years, which need more of install than the others do.
RECENT: Mapping[str, dict[str, Any]] = {
    "ministral3": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "original_max_position_embeddings": WINDOW // 2,
            "llama_4_scaling_beta": 0.3,
        }
    },
    "qwen3_5_text": {
        **_LINEAR,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    },
    "gemma4_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 12,
        "per_layer_config": {"1": {"head_dim": 32}},
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCABULARY,
    },
    "lfm2": {"num_hidden_layers": 3, "full_attn_idxs": [1, 2]},
    "minimax_m2": {**_EXPERTS, "rotary_dim": 8},
    "deepseek_v2": {**_LATENT, "topk_method": "greedy"},
    "llama4_text": {
        "num_local_experts": 2,
        "intermediate_size_mlp": 32,
        "num_hidden_layers": 4,
        "use_qk_norm": False,
    },
}
# Families that no plan can be put into.
REFUSED: Mapping[str, dict[str, Any]] = {}

SMALL: Mapping[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 48,
    "initializer_range": 0.3,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""What any config class takes, for a model that is used with the weights it is made with."""


def tiny_config(family: str, **changes: Any) -> Any:
    own = {**FAMILIES, **RECENT, **REFUSED}.get(family, {})
    return AutoConfig.for_model(family, **{**_COMMON, **own, **changes})


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
