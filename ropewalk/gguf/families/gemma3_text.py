"""Gemma 3: windows in most layers, which turn by a base of their own, and norms around all."""

from __future__ import annotations

import re
from typing import Any

from ropewalk.errors import Unsupported
from ropewalk.gguf.families import GGUFFamily, Keys, TensorPart, Weights, window_keys

_OF_PICTURES = re.compile(r"(?:model\.)?(?:vision_tower|multi_modal_projector)\.")
"""The tensors that read pictures, left out: llama.cpp takes them from a second file (mmproj)."""
_WRAPPED = re.compile(r"^(?:model\.)?language_model\.")
_LARGEST = 62
"""The layers of the 27B model, which scales its attention differently."""
_GELU = 1e-2
"""llama.cpp looks GELU up in a table of F16: about three times the worst seen, 3e-3."""


def _parts(source: str) -> tuple[TensorPart, ...]:
    if _OF_PICTURES.match(source):
        return ()
    name = _WRAPPED.sub("", source)
    name = name if name.startswith(("model.", "lm_head.")) else f"model.{name}"
    # A norm multiplies by 1 + its weight in transformers, and by its weight in llama.cpp.
    return (
        TensorPart(name, (lambda weight: weight + 1) if name.endswith("norm.weight") else None),
    )


def _keys(config: Any, weights: Weights) -> Keys:
    keys: dict[str, Any] = dict(window_keys(config, every=6))
    if config.final_logit_softcapping:
        keys["{arch}.final_logit_softcapping"] = float(config.final_logit_softcapping)
    return keys


def _check(config: Any) -> None:
    width, heads, layers = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    usual = width // heads if layers == _LARGEST else config.head_dim
    scalar = config.query_pre_attn_scalar
    if scalar is not None and usual is not None and scalar != usual:
        raise Unsupported(
            f"query_pre_attn_scalar = {scalar} (256 where the config does not state it): llama.cpp "
            f"always computes a gemma3 of {layers} layers with {usual}; correct the config, or "
            "export for another runtime"
        )
    if config.attn_logit_softcapping:
        raise Unsupported("attn_logit_softcapping: llama.cpp's gemma3 caps no attention logits")
    if config.use_bidirectional_attention:
        raise Unsupported(
            "use_bidirectional_attention: this model attends in both directions, and only causal "
            "models are exported"
        )


FAMILY = GGUFFamily(
    ("gemma3",),
    activations=("gelu_pytorch_tanh",),
    inside=("gemma3",),
    windows=True,
    tolerance=_GELU,
    parts=_parts,
    keys=_keys,
    check=_check,
)
