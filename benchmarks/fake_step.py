"""The formula of a training step next to a step on fake tensors, which use no memory.

    python -m benchmarks.fake_step

Model, loss and sharding are the real ones; tensors have shapes and no contents, and the ranks are a
process group that sends nothing. Two depths are run, and all layers counted by their difference.
The optimizer is not run: its temporaries would be counted by global shapes. Its state is twice a
rank's weights. Adapters, sequence groups and experts cannot be measured in this way.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.machine import PAGE
from ropewalk.costs.machines import machine
from ropewalk.costs.memory_and_time import GIB, Workload, step
from ropewalk.costs.sizes import Sizes, sizes_of
from ropewalk.models.config import Config, for_stock_class
from ropewalk.models.renamed import recompute_activations
from ropewalk.models.sharding import layers_of
from ropewalk.models.source import resolve
from ropewalk.outputs import write_atomically
from ropewalk.training.loss import METHOD, prepare_loss
from ropewalk.training.parallel import mixed_precision

RESULTS = Path(__file__).with_name("results") / "fake_step.json"
TESTED = ("2.13",)
"""Releases of torch whose private parts (fake tensors, process groups, trackers) this fits."""
SHALLOW, DEEP = 2, 4
RANKS, LENGTH = 8, 32_768
MODELS = ("llama-3.1-8b", "llama-3.2-1b", "mistral-7b-v0.3", "qwen3-8b")
_ATTENTION = "ropewalk_fake"


def main() -> None:
    rows = []
    for name in MODELS:
        source = resolve(name)
        config = {**source.config, **source.value.sizes}
        for recompute in (False, True):
            rows.append({"model": name, "recompute": recompute, **_row(config, recompute)})
            print(rows[-1], flush=True)
    found = {"torch": torch.__version__, "ranks": RANKS, "length": LENGTH, "rows": rows}
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")


def _row(config: dict[str, Any], recompute: bool) -> dict[str, float]:
    """Bytes of one rank by fake tensors and by the formula."""
    sizes = sizes_of(config)
    fake = measured_step(config, sizes, LENGTH, RANKS, recompute=recompute)
    work = Workload(sizes, LENGTH, machine(f"{RANKS}xh100"), LENGTH)
    formula = step(work, RANKS, 1, recompute=recompute, lora=False, window=LENGTH).parts
    return {"fake": sum(fake.values()), "formula": sum(formula.values())}


def blocks() -> dict[str, str]:
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = [
        "| model | recomputed | fake tensors | formula | differs by |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['model']} | {'yes' if row['recompute'] else 'no'} | {row['fake'] / GIB:.1f} GiB | "
        f"{row['formula'] / GIB:.1f} GiB | {row['formula'] / row['fake'] - 1:+.0%} |"
        for row in found["rows"]
    ]
    told = f"A window of {found['length']:,} tokens on {found['ranks']} devices, one rank, with "
    return {PAGE: "\n".join(lines) + f"\n\n{told}torch {found['torch']}.\n"}


def measured_step(
    config: Config, sizes: Sizes, length: int, ranks: int, *, recompute: bool
) -> dict[str, float]:
    """Bytes of one rank at the peak of a step of one window, all weights trained, by part."""
    if torch.__version__.rpartition(".")[0] not in TESTED:
        raise SystemExit(f"this needs private parts of torch {TESTED[0]}, not {torch.__version__}")
    depths = (SHALLOW, DEEP)
    with _group(ranks):
        found = [_peak(_cut(config, depth), length, ranks, recompute) for depth in depths]
    more = (len(sizes.layers) - SHALLOW) / (DEEP - SHALLOW)
    parts = {name: one + more * (found[1][name] - one) for name, one in found[0].items()}
    parts["optimizer"] = 2.0 * sizes.weights * torch.float32.itemsize / ranks
    return parts


@contextmanager
def _group(ranks: int) -> Iterator[None]:
    store = importlib.import_module("torch.testing._internal.distributed.fake_pg").FakeStore()
    dist.init_process_group("fake", rank=0, world_size=ranks, store=store)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _cut(config: Config, depth: int) -> dict[str, Any]:
    """A config with so many of its layers."""
    count = config.get("num_hidden_layers")
    return {
        key: value[:depth] if isinstance(value, list) and len(value) == count else value
        for key, value in config.items()
    } | {"num_hidden_layers": depth}


def _peak(config: dict[str, Any], length: int, ranks: int, recompute: bool) -> dict[str, float]:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

    AttentionInterface.register(_ATTENTION, _causal)
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("shard",))
    kind = config.pop("model_type")
    with FakeTensorMode():
        made = AutoConfig.for_model(kind, **for_stock_class(config))
        model = AutoModelForCausalLM.from_config(made, dtype=torch.float32)
        model.set_attn_implementation(_ATTENTION)
        prepare_loss(model, check=False)
        model.forward = getattr(model, METHOD)  # the tracker begins with the root's forward
        model.train()
        if recompute:
            recompute_activations(model)
        for unit in (*layers_of(model), model):
            fully_shard(unit, mesh=mesh, mp_policy=mixed_precision(bfloat16=True))
        tokens = torch.zeros((1, length), dtype=torch.long)
        tracker = FSDPMemTracker(model)
        tracker.track_inputs((tokens,))
        with tracker:
            torch.autograd.backward(model(tokens, {"input_ids": tokens}, None))
        (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return _named(snapshot)


def _named(snapshot: Mapping[Any, int]) -> dict[str, float]:
    """The sizes by the parts that people know; the tracker's names hold those of torch."""
    parts: dict[str, float] = {}
    for own, size in snapshot.items():
        if own == "Total":
            continue
        name = _PARTS.get(own.name, "other")
        parts[name] = parts.get(name, 0.0) + size
    return parts


_PARTS = {
    "SHARDED_PARAM": "weights",
    "SHARDED_GRAD": "gradients",
    "UNSHARDED_PARAM": "weights at work",
    "ALL_GATHER": "weights at work",
    "UNSHARDED_GRAD": "gradients at work",
    "REDUCE_SCATTER": "gradients at work",
    "ACT": "activations",
    "TEMP": "temporary",
}


def _causal(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Allocate as a fast engine does: no mask, and keys that are not copied for each head."""
    out = scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=kwargs.get("scaling"), enable_gqa=True
    )
    return out.transpose(1, 2).contiguous(), None


if __name__ == "__main__":
    main()
