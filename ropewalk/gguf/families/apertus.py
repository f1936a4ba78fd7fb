"""Apertus: Llama with norms of queries and keys, and an activation that it learns by layer."""

from __future__ import annotations

from typing import Any

from ropewalk.errors import InputError
from ropewalk.gguf.families import GGUFFamily, Keys, TensorPart, Weights

_LEARNED = ("alpha_n", "alpha_p", "beta", "eps")


def _keys(config: Any, weights: Weights) -> Keys:
    """The learned parameters of the activation, which are metadata in a GGUF file."""
    layers = range(config.num_hidden_layers)
    return {
        f"xielu.{name}": [_number(f"model.layers.{i}.mlp.act_fn.{name}", weights) for i in layers]
        for name in _LEARNED
    }


def _number(name: str, weights: Weights) -> float:
    tensor = weights(name)
    if tensor.numel() != 1:
        raise InputError(f"{name}: holds {tensor.numel()} numbers in place of one; copy it again")
    return float(tensor)


FAMILY = GGUFFamily(
    ("apertus",),
    activations=("xielu",),
    parts=lambda source: () if ".mlp.act_fn." in source else (TensorPart(source),),
    keys=_keys,
)
