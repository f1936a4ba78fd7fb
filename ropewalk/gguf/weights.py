"""The weights of a GGUF file in a stock transformers model, to compare llama.cpp with.

For the architectures near Llama's, whose arithmetic both libraries have in common. Quantised
weights are taken as llama.cpp takes them: as the numbers that they stand for.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ropewalk.errors import InputError, Unsupported
from ropewalk.gguf.architectures import CONSECUTIVE
from ropewalk.gguf.header import FREQUENCIES, LONG, SHORT, GGUFHeader

ARCHITECTURES = ("llama", "qwen2", "qwen3", "smollm3", "seed_oss")
_NAMES = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))
_TOP: dict[str, str] = _NAMES["top"]
_IN_LAYER: dict[str, str] = _NAMES["in_layer"]


def stored_type(header: GGUFHeader) -> str:
    """GGML's name for the type that most of the weights have."""
    from gguf import GGMLQuantizationType

    sizes: Counter[int] = Counter()
    for place in header.tensors.values():
        sizes[place.kind] += math.prod(place.shape)
    try:
        return GGMLQuantizationType(max(sizes, key=sizes.__getitem__)).name
    except ValueError:
        return "of an unknown type"


def rounded(weight: Tensor, dtype: str) -> Tensor:
    """A weight rounded as a type stores it; rows that no block divides go to F16."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    kind = GGMLQuantizationType["F16" if dtype == "Q8_0" and weight.shape[-1] % 32 else dtype]
    return torch.from_numpy(dequantize(quantize(weight.numpy(), kind), kind))


def model_of(header: GGUFHeader) -> nn.Module:
    """A model in float32 whose weights are those of the file."""
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from transformers import AutoModelForCausalLM

    if header.architecture not in ARCHITECTURES or header.number("expert_count"):
        raise Unsupported(
            f"architecture {header.architecture!r}: only models of {', '.join(ARCHITECTURES)} "
            "without experts can be built again in transformers"
        )
    # The file's numbers under transformers' names, in transformers' order of pairs.
    weights: dict[str, Tensor] = {}
    for path in sorted({place.path or header.path for place in header.tensors.values()}):
        for tensor in GGUFReader(path).tensors:
            if tensor.name in (FREQUENCIES, LONG, SHORT):
                continue
            values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            weights[_name(tensor.name)] = torch.from_numpy(values)
    config = _config(header, weights)
    with torch.device("meta"):  # the keys may state any size
        state = AutoModelForCausalLM.from_config(config, dtype=torch.float32).state_dict()
    # What the file need not hold: biases of zero, and a head that is the embedding.
    absent = {n for n in state if n.endswith("o_proj.bias") and n not in weights}
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    wrong = sorted(n for n in {*state, *weights} - absent if _shape(state, n) != _shape(weights, n))
    if wrong:
        raise InputError(
            f"{header.path}: {len(wrong)} of its tensors do not belong to a model of its "
            f"architecture: {', '.join(wrong[:3])}; convert it again"
        )
    weights |= {name: torch.zeros(state[name].shape) for name in absent}
    if header.architecture in CONSECUTIVE:
        _in_halves(weights, config.head_dim)
    model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(weights)
    return model.eval()


def _config(header: GGUFHeader, weights: Mapping[str, Tensor]) -> Any:
    from transformers import AutoConfig

    def count(key: str) -> int:
        if (value := header.number(key)) is None:
            raise InputError(f"{header.path}: states no {key}; convert it again")
        return int(value)

    width, heads = count("embedding_length"), count("attention.head_count")
    bias = {}
    if header.architecture != "qwen2":
        bias["attention_bias"] = _biased(weights, "q_proj")
    if header.architecture == "seed_oss":
        bias["attention_out_bias"] = _biased(weights, "o_proj")
    return AutoConfig.for_model(
        header.architecture,
        hidden_size=width,
        intermediate_size=count("feed_forward_length"),
        num_hidden_layers=count("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=int(header.number("attention.head_count_kv") or heads),
        head_dim=int(header.number("attention.key_length") or width // heads),
        vocab_size=weights["model.embed_tokens.weight"].shape[0],
        rms_norm_eps=header.number("attention.layer_norm_rms_epsilon") or 1e-6,
        max_position_embeddings=count("context_length"),
        rope_theta=header.number("rope.freq_base") or 1e4,
        tie_word_embeddings="lm_head.weight" not in weights,
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),  # of its family's size
        **bias,
    )


def _biased(weights: Mapping[str, Tensor], part: str) -> bool:
    return any(name.endswith(f"{part}.bias") for name in weights)


def _name(name: str) -> str:
    """transformers' name of a tensor."""
    stem, _, kind = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{kind}"
    parts = stem.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[2] in _IN_LAYER:
        return f"model.layers.{parts[1]}.{_IN_LAYER[parts[2]]}.{kind}"
    raise Unsupported(f"a tensor {name}, which transformers' model does not have")


def _in_halves(weights: dict[str, Tensor], head_dim: int) -> None:
    """llama.cpp's llama turns dimension 2i with 2i + 1, transformers i with i + d/2."""
    for name, value in weights.items():
        if name.split(".")[-2] in ("q_proj", "k_proj"):
            pairs = value.reshape(-1, head_dim // 2, 2, *value.shape[1:])
            weights[name] = pairs.swapaxes(1, 2).reshape(value.shape)


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None
