"""The names of the tensors that a model type asks for, if its naming is known.

The rows are those of transformers' classes, with which the tests compare them. Experts are left
out, since files store them in several ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ropewalk.models.config import ConfigReader

_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_ATTENTION = (*_QKV, "self_attn.o_proj")
_HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
_UP_DOWN, _FUSED = ("mlp.up_proj", "mlp.down_proj"), ("mlp.gate_up_proj", "mlp.down_proj")
_BEFORE, _AFTER = "input_layernorm", "post_attention_layernorm"
_FEED_FORWARD = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
_NORMS = (_BEFORE, _AFTER)


class _Bias(NamedTuple):
    """Parts that have a bias if a key of the config says so; without a key, they always do."""

    key: str
    default: bool
    parts: tuple[str, ...]


class _Naming(NamedTuple):
    """The parts of a layer, each with a weight."""

    parts: tuple[str, ...]
    biases: tuple[_Bias, ...] = ()
    last: tuple[str, ...] = ("norm.weight",)


_ON_REQUEST = _Bias("attention_bias", False, _ATTENTION)
_MLP_ON_REQUEST = _Bias("mlp_bias", False, _MLP)
_LLAMA = _Naming((*_ATTENTION, *_MLP, *_NORMS), (_ON_REQUEST, _MLP_ON_REQUEST))
_DENSE = _LLAMA._replace(biases=(_ON_REQUEST,))
_PARALLEL = _DENSE._replace(parts=(*_ATTENTION, *_MLP, _BEFORE))
_GEMMA = (*_ATTENTION, *_MLP, *_NORMS, *_FEED_FORWARD)
_OLMO = (*_ATTENTION, *_HEAD_NORMS, *_MLP, _AFTER, _FEED_FORWARD[1])
_EXPERTS = _Naming((*_ATTENTION, *_NORMS), (_ON_REQUEST,))
_BIASED_NORM = ("norm.weight", "norm.bias")
_GLM = (*_ATTENTION, *_FUSED, *_NORMS)
_QUERIES_AND_KEYS = _Bias("attention_bias", True, _QKV)
_LATENT = ("kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj")
_DEEPSEEK = _Naming((*(f"self_attn.{part}" for part in _LATENT), *_NORMS))
_NEOX = ("attention.query_key_value", "attention.dense")
_NEOX_REST = ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", *_NORMS)
_PHI = (*_QKV, "self_attn.dense", "mlp.fc1", "mlp.fc2", _BEFORE)
_STARCODER = (*_ATTENTION, "mlp.c_fc", "mlp.c_proj")

NAMINGS: Mapping[str, _Naming] = {
    "apertus": _Naming(
        (
            *(*_ATTENTION, *_HEAD_NORMS, *_UP_DOWN),
            *("attention_layernorm", "feedforward_layernorm"),
        ),
        (_ON_REQUEST,),
    ),
    "arcee": _Naming(
        (*_ATTENTION, *_UP_DOWN, *_NORMS), (_ON_REQUEST, _Bias("mlp_bias", False, _UP_DOWN))
    ),
    "cohere": _PARALLEL,
    "cohere2": _PARALLEL,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "ernie4_5": _Naming(_LLAMA.parts, (_Bias("use_bias", False, (*_ATTENTION, *_MLP)),)),
    "exaone4": _Naming(_OLMO),
    "gemma": _DENSE,
    "gemma2": _DENSE._replace(parts=_GEMMA),
    "gemma3_text": _DENSE._replace(parts=(*_GEMMA, *_HEAD_NORMS)),
    "glm": _Naming(_GLM, (_QUERIES_AND_KEYS,)),
    "glm4": _Naming(
        (*_GLM, "post_self_attn_layernorm", "post_mlp_layernorm"), (_QUERIES_AND_KEYS,)
    ),
    "gpt_neox": _Naming(
        (*_NEOX, *_NEOX_REST),
        (_Bias("attention_bias", True, _NEOX), _Bias("", True, _NEOX_REST)),
        ("final_layer_norm.weight", "final_layer_norm.bias"),
    ),
    "gpt_oss": _EXPERTS._replace(biases=(_Bias("attention_bias", True, _ATTENTION),)),
    "granite": _LLAMA,
    "granitemoe": _EXPERTS,
    "helium": _Naming(_LLAMA.parts, (_Bias("attention_bias", False, _QKV), _MLP_ON_REQUEST)),
    "llama": _LLAMA,
    "mistral": _Naming(_LLAMA.parts),
    "mixtral": _Naming(_EXPERTS.parts),
    "olmo": _DENSE._replace(parts=(*_ATTENTION, *_MLP), last=()),
    "olmo2": _DENSE._replace(parts=_OLMO),
    "olmo3": _DENSE._replace(parts=_OLMO),
    "olmoe": _EXPERTS._replace(parts=(*_EXPERTS.parts, *_HEAD_NORMS)),
    "phi": _Naming(
        _PHI, (_Bias("", True, _PHI),), ("final_layernorm.weight", "final_layernorm.bias")
    ),
    "phi3": _Naming(("self_attn.qkv_proj", "self_attn.o_proj", *_FUSED, *_NORMS)),
    "phimoe": _EXPERTS._replace(biases=(_ON_REQUEST, _Bias("", True, _NORMS)), last=_BIASED_NORM),
    "qwen2": _Naming(_LLAMA.parts, (_Bias("", True, _QKV),)),
    "qwen2_moe": _EXPERTS._replace(biases=(_Bias("qkv_bias", True, _QKV),)),
    "qwen3": _DENSE._replace(parts=(*_LLAMA.parts, *_HEAD_NORMS)),
    "qwen3_moe": _EXPERTS._replace(parts=(*_EXPERTS.parts, *_HEAD_NORMS)),
    "seed_oss": _Naming(
        _LLAMA.parts,
        (
            _QUERIES_AND_KEYS,
            _Bias("attention_out_bias", False, ("self_attn.o_proj",)),
            _MLP_ON_REQUEST,
        ),
    ),
    "smollm3": _LLAMA,
    "stablelm": _Naming(
        _PARALLEL.parts,
        (_Bias("use_qkv_bias", False, _QKV), _Bias("", True, (_BEFORE,))),
        _BIASED_NORM,
    ),
    "starcoder2": _Naming(
        (*_STARCODER, *_NORMS),
        (_Bias("use_bias", True, _STARCODER), _Bias("", True, _NORMS)),
        _BIASED_NORM,
    ),
}
"""Model types whose every tensor of the usual names is known, in every layer."""


def in_each_layer(reader: ConfigReader) -> tuple[str, ...]:
    """The names that every layer must have; none for a model type that is not known."""
    naming = NAMINGS.get(reader.model_type)
    if naming is None:
        return ()
    parts = list(naming.parts)
    if naming is _DEEPSEEK:
        compressed = reader.config.get("q_lora_rank", 1536) is not None
        queries = ("q_a_proj", "q_a_layernorm", "q_b_proj") if compressed else ("q_proj",)
        parts += [f"self_attn.{part}" for part in queries]
    biased = [
        part
        for bias in naming.biases
        if not bias.key or reader.config.get(bias.key, bias.default) is True
        for part in bias.parts
    ]
    return (*(f"{part}.weight" for part in parts), *(f"{part}.bias" for part in biased))


def after_the_layers(reader: ConfigReader) -> tuple[str, ...]:
    """The names of the final norm; none for a model type that is not known."""
    naming = NAMINGS.get(reader.model_type)
    return naming.last if naming is not None else ()
