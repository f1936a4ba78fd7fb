"""A trained model as a folder: weights gathered from all ranks, and the plan in the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.exporting.configs import stock_config
from ropewalk.exporting.writing import staged, write_json
from ropewalk.untrusted import read_json


def save_whole(
    model: Any, folder: Path, tokenizer: Any = None, *, plan: ContextPlan | None = None
) -> None:
    """Write what `from_pretrained` reads, on all ranks together. With `plan`, its config follows
    it; without, the config is the model's own, as for an adapter, whose base has a config."""
    weights = _gathered(model)
    if not dist.is_initialized() or dist.get_rank() == 0:
        size = sum(each.numel() * each.element_size() for each in weights.values())
        with staged(folder, needs_bytes=size, overwrite=True) as staging:
            model.save_pretrained(str(staging), state_dict=weights)
            if plan is not None:
                config = read_json(staging / "config.json")
                assert isinstance(config, dict)
                write_json(staging / "config.json", stock_config(config, plan))
                write_json(staging / PLAN, plan.to_json())
            if tokenizer is not None:
                tokenizer.save_pretrained(str(staging))
    if dist.is_initialized():
        dist.barrier()


def _gathered(model: Any) -> dict[str, Tensor]:
    """The state on the CPU of the first rank; empty on the others, which take part."""
    first = not dist.is_initialized() or dist.get_rank() == 0
    whole = {}
    for name, value in model.state_dict().items():
        full = value.full_tensor() if isinstance(value, DTensor) else value
        if first:
            whole[name] = full.detach().cpu()
    return whole
