"""Adapters (LoRA, through peft): put around a model, and merged into plain weights again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ropewalk.exporting.writing import staged
from ropewalk.extras import required_by

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
    return get_peft_model(model, config)


def is_adapted(model: Any) -> bool:
    return hasattr(model, "peft_config")


def causal_of(model: Any) -> Any:
    """The causal language model that an adapter may be around."""
    return model.get_base_model() if is_adapted(model) else model


def plain_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The whole weights by the names that they have without an adapter, which is merged into them.

    All ranks take part, and all get them. Tied weights come once.
    """
    causal = causal_of(model)
    known = {name for name, _ in causal.named_parameters()}
    buffers = {name for name, _ in causal.named_buffers()}
    layers = {name: own for name, own in causal.named_modules() if hasattr(own, "lora_A")}
    for name, value in causal.state_dict().items():
        if _LORA in name or name not in known | buffers:
            continue
        weight = _whole(value)
        if name.endswith(f"{_BASE}weight"):
            layer: Any = layers[name.removesuffix(f"{_BASE}weight")]
            up, down = (_whole(own[_NAME].weight.detach()) for own in (layer.lora_B, layer.lora_A))
            weight = weight + (layer.scaling[_NAME] * (up @ down)).to(weight.dtype)
        yield name.replace(_BASE, "."), weight


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapter as peft keeps it, on all ranks together."""
    from peft import get_peft_model_state_dict

    state = {name: _whole(value).cpu() for name, value in get_peft_model_state_dict(model).items()}
    if not dist.is_initialized() or dist.get_rank() == 0:
        size = sum(value.nbytes for value in state.values())
        with staged(folder, needs_bytes=size, overwrite=True) as staging:
            whole = {
                f"base_model.model.{name}" if not name.startswith("base_model") else name: v
                for name, v in state.items()
            }
            from peft.utils import SAFETENSORS_WEIGHTS_NAME
            from safetensors.torch import save_file

            staging.mkdir()
            save_file(whole, staging / SAFETENSORS_WEIGHTS_NAME, metadata={"format": "pt"})
            model.peft_config[_NAME].save_pretrained(str(staging))
    if dist.is_initialized():
        dist.barrier()


def _whole(value: Tensor) -> Tensor:
    own = value.full_tensor() if isinstance(value, DTensor) else value
    return own.detach()
