"""A trained model as a folder: weights gathered from all ranks, and the plan in the config.

Adapters (LoRA, through peft) are put around a model, and merged into plain weights again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.exporting.manifest import Manifest
from ropewalk.exporting.staging import staged
from ropewalk.exporting.writing import write_json
from ropewalk.extras import required_by
from ropewalk.models.stock_config import stock_config
from ropewalk.training.ranks import on_first, rank, whole
from ropewalk.untrusted import read_json


def save_whole(
    model: Any, folder: Path, tokenizer: Any = None, *, plan: ContextPlan | None = None
) -> None:
    """Write what `from_pretrained` reads, on all ranks together: a model, or its adapter alone.

    With `plan`, the config follows it. The folder of an adapter has no config, and gets the plan
    as a file. What a former call wrote there is replaced, and nothing else.
    """
    weights = _gathered(model)

    def write() -> None:
        size = sum(each.numel() * each.element_size() for each in weights.values())
        with staged(folder, needs_bytes=size, overwrite=True) as staging:
            more = {"save_embedding_layers": False} if _is_adapter(model) else {}
            model.save_pretrained(str(staging), state_dict=weights, **more)
            if plan is not None:
                _write_plan(staging, plan)
            if tokenizer is not None:
                tokenizer.save_pretrained(str(staging))
            Manifest.of(staging, runtime="transformers").write(staging)

    on_first(write)


def causal_of(model: Any) -> Any:
    """The causal language model, which an adapter (peft) may be wrapped around."""
    return model.get_base_model() if _is_adapter(model) else model


def _is_adapter(model: Any) -> bool:
    return hasattr(model, "get_base_model")


def _write_plan(folder: Path, plan: ContextPlan) -> None:
    if (folder / "config.json").is_file():
        config = read_json(folder / "config.json")
        assert isinstance(config, dict)
        write_json(folder / "config.json", stock_config(config, plan))
    write_json(folder / PLAN, plan.to_json())


def _gathered(model: Any) -> dict[str, Tensor]:
    """The state on the CPU of the first rank; empty on the others, which take part."""
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    gathered = {}
    for name, value in model.state_dict().items():
        if _is_adapter(model) and name not in trained:
            continue
        full = whole(value)
        if rank() == 0:
            gathered[name] = full.cpu()
    return gathered


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
    names = {name for name, _ in (*causal.named_parameters(), *causal.named_buffers())}
    layers = {name: module for name, module in causal.named_modules() if hasattr(module, "lora_A")}
    for name, value in causal.state_dict().items():
        if _LORA in name or name not in names:
            continue
        weight = whole(value)
        if name.endswith(f"{_BASE}weight"):
            layer: Any = layers[name.removesuffix(f"{_BASE}weight")]
            up, down = (whole(factor[_NAME].weight) for factor in (layer.lora_B, layer.lora_A))
            weight = weight + (layer.scaling[_NAME] * (up @ down)).to(weight.dtype)
        yield name.replace(_BASE, "."), weight
