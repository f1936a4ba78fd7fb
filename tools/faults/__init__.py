"""Faults in released software: each file here reproduces one, and its docstring describes it.

A file prints what the software does and what it should do, or fails as the software does.
`python -m tools.found` runs them all and writes docs/found.md. This file has the settings and the
tiny models that they share.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DeepseekV3Config

from tools.engine_parts import real as real

torch.set_grad_enabled(False)
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 2.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 4096,
}
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 4096,
    "short_factor": [1.0] * 64,
    "long_factor": [4.0] * 64,
    "attention_factor": 1.0,
}
HUNYUAN: dict[str, Any] = {
    "model_type": "hunyuan_v1_moe",
    "architectures": ["HunYuanMoEV1ForCausalLM"],
    "hidden_size": 4096,
    "head_dim": 128,
    "num_attention_heads": 32,
    "max_position_embeddings": 32768,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "type": "dynamic",
        "alpha": 1000.0,
        "factor": 1.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}
"""Of Hunyuan-A13B's published config, what rotation depends on."""
_NINE = {
    "gemma": "GemmaDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "granitemoe": "GraniteMoeDecoderLayer",
    "mixtral": "MixtralDecoderLayer",
    "olmo": "OlmoDecoderLayer",
    "persimmon": "PersimmonDecoderLayer",
    "phi": "PhiLayer",
    "stablelm": "StablelmDecoderLayer",
    "starcoder2": "Starcoder2DecoderLayer",
}
_TINY = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 16384,
    "pad_token_id": 0,
    "eos_token_id": 0,
}


def folder(**config: Any) -> str:
    """A folder with this config.json."""
    path = Path(tempfile.mkdtemp())
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def tiny(kind: str, **config: Any) -> Any:
    """A tiny model of transformers with random weights."""
    torch.manual_seed(0)
    stated = AutoConfig.for_model(kind, **{**_TINY, **config})
    return AutoModelForCausalLM.from_config(stated).eval()


def saved(kind: str, **config: Any) -> Path:
    """A folder with a tiny model."""
    path = Path(folder())
    tiny(kind, **config).save_pretrained(path)
    return path


def angle(rotary: Any, position: int) -> float:
    """The rotation of the slowest pair in the table of an engine's rotary module."""
    cos, sin = rotary.cos_sin_cache[position].float().chunk(2)
    return float(torch.atan2(sin[-1], cos[-1]))


def layers_of_nine(setting: dict[str, Any]) -> list[Any]:
    """A decoder layer of each of the nine classes of SGLang, under this setting."""
    layers = []
    for kind, name in _NINE.items():
        own = {"rope_parameters": dict(setting), "hidden_act": "gelu_pytorch_tanh"}
        number = {"idx" if kind in ("phi", "persimmon") else "layer_id": 0}
        module = real(f"sglang.srt.models.{kind}", "sglang.srt.models.granite")
        layers.append(getattr(module, name)(config=AutoConfig.for_model(kind, **own), **number))
    return layers


def deepseek_layer(attention: Any, setting: dict[str, Any]) -> Any:
    """vLLM's attention for DeepSeek-V3, under this setting."""
    config = DeepseekV3Config(rope_parameters=dict(setting), max_position_embeddings=32768)
    names = ("hidden_size", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank")
    sizes = {name: getattr(config, name) for name in (*names, "kv_lora_rank")}
    return attention(None, config, num_heads=8, max_position_embeddings=32768, **sizes)
