"""Models that are divided over two gloo processes, each of which checks its own."""

from __future__ import annotations

import json
from pathlib import Path

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

import ropewalk as rw
from tests.rotation.planted import FAULTS, llama, plan_of
from tests.training.sharded import join


def work(rank: int, ranks: int, out: str) -> None:
    join(rank, ranks, Path(out) / "meeting")
    told = {}
    mesh = init_device_mesh("cpu", (ranks,))
    for name, plant in (("planned", llama), ("lost", FAULTS["factor lost"][0])):
        sharded = plant()
        for layer in sharded.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        folder = Path(out) / name
        if rank == 0:
            plant().save_pretrained(folder)
        dist.barrier()
        parallel = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto")
        for kind, model in (("sharded", sharded), ("parallel", parallel)):
            assert any(isinstance(own, DTensor) for own in model.parameters()), kind
            told[f"{name}, {kind}"] = rw.same_rotation(model, plan_of()).summary()
    (Path(out) / f"{rank}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()
