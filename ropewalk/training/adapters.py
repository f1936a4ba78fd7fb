"""Adapters (LoRA, through peft): put around a model, and merged into plain weights again."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ropewalk.extras import required_by
from ropewalk.training.ranks import whole
from ropewalk.training.saving import causal_of

_NAME = "default"
_BASE, _LORA = ".base_layer.", ".lora_"


@required_by("lora")
def with_adapter(model: Any, rank: int, *, seed: int) -> Any:
    """The model with an adapter on each linear layer but the head; only adapters are trained."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        # peft asks transformers by a name that is deprecated there.
        warnings.simplefilter("ignore", FutureWarning)
        return get_peft_model(model, config)


def plain_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The whole weights by the names that they have without an adapter, which is merged into them.

    All ranks take part, and all get them. Tied weights come once.
    """
    causal = causal_of(model)
    known = {name for name, _ in (*causal.named_parameters(), *causal.named_buffers())}
    layers = {name: own for name, own in causal.named_modules() if hasattr(own, "lora_A")}
    for name, value in causal.state_dict().items():
        if _LORA in name or name not in known:
            continue
        weight = whole(value)
        if name.endswith(f"{_BASE}weight"):
            layer: Any = layers[name.removesuffix(f"{_BASE}weight")]
            up, down = (whole(own[_NAME].weight) for own in (layer.lora_B, layer.lora_A))
            weight = weight + (layer.scaling[_NAME] * (up @ down)).to(weight.dtype)
        yield name.replace(_BASE, "."), weight
