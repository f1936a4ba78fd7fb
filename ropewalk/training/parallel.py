"""The division of windows and weights among ranks.

    replicate × shard × sequence = the number of ranks

Ranks of a `sequence` group read the same windows, each its stretch of them (attention/ulysses.py).
Weights, gradients and optimizer state are cut over the ranks of `shard` and `sequence` together
(FSDP2), and copied `replicate` times.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from ropewalk.errors import InputError, InvalidValue, RopewalkError, shortened
from ropewalk.models.sharding import units_of
from ropewalk.training.execution import Division
from ropewalk.training.ranks import gathered, rank, ranks, weights_digest


class Place:
    """This rank's place in a division. Several ranks must have met (`torch.distributed`)."""

    def __init__(self, division: Division, device: str) -> None:
        if division.ranks != ranks():
            raise InvalidValue(
                "division",
                f"{division.replicate} × {division.shard} × {division.sequence}",
                f"must be the number of ranks, {ranks()}",
                f"start with `torchrun --nproc-per-node {division.ranks}`, or divide otherwise",
            )
        self.division, self._device = division, device
        self.reader, self.stretch = divmod(rank(), division.sequence)

    @cached_property
    def sequence_mesh(self) -> DeviceMesh | None:
        """The ranks that share this one's windows."""
        split = self.division
        if split.sequence == 1:
            return None
        mesh = init_device_mesh(
            self._device, (split.readers, split.sequence), mesh_dim_names=("readers", "sequence")
        )
        return mesh["sequence"]

    @cached_property
    def weights_mesh(self) -> DeviceMesh:
        split = self.division
        cut = split.shard * split.sequence
        if split.replicate == 1:
            return init_device_mesh(self._device, (cut,), mesh_dim_names=("shard",))
        return init_device_mesh(
            self._device, (split.replicate, cut), mesh_dim_names=("replicate", "shard")
        )


def shard_for_training(model: nn.Module, place: Place, *, bfloat16: bool = False) -> None:
    """Cut a model's weights over the ranks. With one rank it stays as it is."""
    if place.division.ranks == 1:
        return
    check_same(model)
    policy = mixed_precision(bfloat16=bfloat16)
    for unit in units_of(model):
        fully_shard(unit, mesh=place.weights_mesh, mp_policy=policy)
    fully_shard(model, mesh=place.weights_mesh, mp_policy=policy)


def mixed_precision(*, bfloat16: bool) -> MixedPrecisionPolicy:
    """Inputs are not cast: cos and sin stay as the model makes them."""
    if not bfloat16:
        return MixedPrecisionPolicy(cast_forward_inputs=False)
    return MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
    )


def check_same(model: nn.Module) -> None:
    """Refuse weights that differ between ranks: each would train a piece of another model.

    Those that are still in their files are compared there (ranks.check_seen).
    """
    loaded = [each for each in model.named_parameters() if not each[1].is_meta]
    digests = gathered([weights_digest([each]) for each in loaded])
    names = [name for name, _ in loaded]
    for other, theirs in enumerate(digests):
        if theirs != digests[0]:
            differ = [name for name, a, b in zip(names, digests[0], theirs, strict=False) if a != b]
            raise InputError(
                f"rank {other} holds different weights from the first ({len(differ)} parameters, "
                f"{shortened(differ[:1])}, …); load the same model on all ranks, and call "
                "transformers.set_seed before random parts are made, such as adapters"
            )


def check_sharded(model: Any) -> None:
    """Refuse to go on if sharding was asked for and did not happen."""
    whole = [name for name, weight in model.named_parameters() if not isinstance(weight, DTensor)]
    if whole or not any(isinstance(module, FSDPModule) for module in model.modules()):
        raise RopewalkError(
            f"sharding was asked for, but {len(whole)} parameters are whole on this rank "
            f"({', '.join(whole[:3])}, …): every rank would train a model of its own, or all of it"
        )
