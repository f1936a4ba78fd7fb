"""A sharded model does what the whole one does, to the bit, under plans of any sort.

One process is a mesh too: the weights of every layer are gone between two forwards, as they are on
many. Many processes are tried in tests/searching/model/test_ranks.py.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import Unsupported
from ropewalk.models.install import applied
from ropewalk.models.sharding import shard
from tests.models.family_run import TARGET
from tests.models.test_install import planned
from tests.models.tiny import FAMILIES, WINDOW, thinned, tiny_model, tokens

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def kept(model: Any) -> ContextPlan:
    """A plan that a rotary module of ours and routed attention have to follow."""
    plan = planned(model, log_n="beyond")
    schedules = {layer: plan.longest(layer) for layer in plan.schedules}
    return ContextPlan(
        plan.model,
        {
            layer: (PlanStep(TARGET, replace(schedule, kept_initial_positions=8)),)
            for layer, schedule in schedules.items()
        },
    )


def logits(model: Any, plan: ContextPlan) -> Tensor:
    """In the two parts in which the scorer asks for them."""
    with applied(model, plan), torch.no_grad():
        hidden = model.base_model(tokens(2 * WINDOW), use_cache=False).last_hidden_state
        result: Tensor = model.get_output_embeddings()(hidden)
        return result


@pytest.mark.parametrize("family", thinned(FAMILIES))
def test_every_family_does_the_same_in_shares(family: str, mesh: DeviceMesh) -> None:
    model = tiny_model(family)
    sharded = copy.deepcopy(model)
    shard(sharded, CPU, mesh)
    for make in (planned, kept):
        plan = make(model)
        assert torch.equal(logits(sharded, plan), logits(model, plan))
    for name, weight in sharded.named_parameters():
        assert isinstance(weight, DTensor) == (".layers." in name), name


def test_embeddings_that_are_the_head_stay_so(mesh: DeviceMesh) -> None:
    model = tiny_model(tie_word_embeddings=True)
    sharded = copy.deepcopy(model)
    shard(sharded, CPU, mesh)
    assert sharded.get_output_embeddings().weight is sharded.get_input_embeddings().weight
    assert torch.equal(logits(sharded, planned(model)), logits(model, planned(model)))


def test_a_layer_may_hold_several_dtypes(mesh: DeviceMesh) -> None:
    model = tiny_model()
    for layer in model.model.layers:
        layer.mlp.to(torch.float64)
        layer.mlp.register_forward_pre_hook(lambda _, given: (given[0].double(),))
        layer.mlp.register_forward_hook(lambda _, given, result: result.float())
    sharded = copy.deepcopy(model)
    shard(sharded, CPU, mesh)
    assert torch.equal(logits(sharded, planned(model)), logits(model, planned(model)))


def test_a_model_without_a_list_of_layers_is_refused(mesh: DeviceMesh) -> None:
    model = tiny_model()
    model.model.layers = torch.nn.Sequential(*model.model.layers)
    with pytest.raises(Unsupported, match="list of layers"):
        shard(model, CPU, mesh)
