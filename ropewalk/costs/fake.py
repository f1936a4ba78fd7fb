"""A step of training measured on fake tensors: its memory on one rank, without using any.

Model, loss and sharding are the real ones; tensors have shapes and no contents, and the ranks are a
process group that sends nothing. Two depths are run, and all layers counted by their difference.
The optimizer is not run: its temporaries would be counted by global shapes. Its state is twice a
rank's weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ropewalk.costs.sizes import Sizes
from ropewalk.errors import Unsupported, shortened
from ropewalk.models.config import Config, for_stock_class
from ropewalk.models.renamed import recompute_activations
from ropewalk.models.sharding import layers_of
from ropewalk.training.loss import METHOD, prepare_loss
from ropewalk.training.parallel import mixed_precision

TESTED = ("2.13",)
"""Releases of torch whose private parts (fake tensors, process groups, trackers) this fits."""
SHALLOW, DEEP = 2, 4
_ATTENTION = "ropewalk_fake"


def measured_step(
    config: Config, sizes: Sizes, length: int, ranks: int, *, recompute: bool
) -> dict[str, float]:
    """Bytes of one rank at the peak of a step of one window, all weights trained, by part."""
    if torch.__version__.rpartition(".")[0] not in TESTED:
        raise Unsupported(
            f"a step can be measured on fake tensors only with torch {', '.join(TESTED)}, whose "
            f"private parts this needs, not with {torch.__version__}; leave out --measure"
        )
    if ranks < 2:
        raise Unsupported(
            "--measure needs a machine of several devices, and this one has one; leave it out, or "
            "give another, such as 8xh100"
        )
    depths = (SHALLOW, DEEP)
    with _group(ranks):
        found = [_peak(_cut(config, depth), length, ranks, recompute) for depth in depths]
    more = (len(sizes.layers) - SHALLOW) / (DEEP - SHALLOW)
    parts = {name: one + more * (found[1][name] - one) for name, one in found[0].items()}
    parts["optimizer"] = 2.0 * sizes.weights * torch.float32.itemsize / ranks
    return parts


@contextmanager
def _group(ranks: int) -> Iterator[None]:
    if dist.is_initialized():
        raise Unsupported("a step is not measured on fake tensors under torchrun; run without it")
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
    try:
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
    except (RuntimeError, NotImplementedError, KeyError, ValueError, TypeError) as error:
        raise Unsupported(
            f"a step of a {kind} cannot be measured on fake tensors ({shortened(str(error))}); "
            "leave out --measure"
        ) from None
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
