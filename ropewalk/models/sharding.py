"""One copy of a model over several ranks, each holding a share of every layer (FSDP2).

Layer after layer goes to the device and is cut there, so a device never holds the whole model. In a
forward a layer is put together when it is its turn and dropped behind it: the ranks of a copy call
the model in step, though each with an input of its own. What is put together are the weights as
they were, to the bit, so every rank computes what a whole model would.

Embeddings, the last norm and the head stay whole on every rank: the head is also called apart from
the layers (scoring.py) and may be tied to the embeddings. Attention is cut apart from the rest of
its layer, as proof.py calls it alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from ropewalk.errors import Unsupported
from ropewalk.models.anatomy import anatomy_of


def shard(model: Any, device: torch.device, mesh: DeviceMesh) -> None:
    """Cut a model that lies on the CPU over the ranks of a mesh, and put this rank's part there."""
    # A layer's parameters may then differ in dtype; nothing is trained here.
    model.requires_grad_(False)
    units = units_of(model)
    whole = set(model.parameters()).difference(*(unit.parameters() for unit in units))
    for unit in units:
        fully_shard(unit, mesh=mesh)
    # As the root of its layers it holds nothing, but lets a layer arrive while another computes.
    fully_shard(model.base_model, mesh=mesh, ignored_params=whole)
    model.to(device)


def units_of(model: nn.Module) -> list[nn.Module]:
    """The units to cut apart: attention, which may be called alone, and the rest of each layer."""
    return [*(layer.module for layer in anatomy_of(model).layers), *layers_of(model)]


def layers_of(model: nn.Module) -> nn.ModuleList:
    """The list of modules with the most parameters: the decoder's layers."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise Unsupported(
            f"{type(model).__name__} holds no list of layers, so its copy cannot be split over "
            "ranks; search with one rank per copy (`ranks_per_copy`)"
        )
    return max(lists, key=lambda layers: sum(p.numel() for p in layers.parameters()))
