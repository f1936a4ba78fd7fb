"""What every process of the sequence-parallel tests runs. See test_ulysses.py.

Each rank computes every case twice: as one process would, and its stretch of it among the others.
It reports how far apart the two are, and the test says how far they may be.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from ropewalk.attention import AttentionLayout, register, ulysses
from ropewalk.errors import RopewalkError
from ropewalk.models.renamed import recompute_activations
from tests.attention.layouts import PARADIGMS

RANKS = 4
# 123 tokens and an anchor: divisible by 4 in no paradigm but one, and the middle document crosses
# every border between ranks.
DOCUMENTS = [17, 87, 1, 18]


class Difference(NamedTuple):
    """Between one process and many."""

    logits: float
    """The largest difference. 0 means equal to the last bit: NaN and -0 do not occur."""
    gradients: float
    """The largest, over parameters, of |difference| / |gradient|."""


def build(key_heads: int, heads: int = 4) -> LlamaForCausalLM:
    """The inner size is a multiple of 64, as in models of use.

    torch computes silu by vectors and what is left over one by one, which rounds otherwise, so in
    other sizes it would depend on the number of tokens which of them are the left over ones.
    """
    register()
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        head_dim=16,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM._from_config(config, attn_implementation="ropewalk").train()


class Window(NamedTuple):
    """One row of data; labels are shifted here, before anything is sharded."""

    layout: AttentionLayout
    tokens: Tensor
    labels: Tensor
    positions: Tensor


def make_window(layout: AttentionLayout, seed: int = 0) -> Window:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 64, (1, layout.length), generator=generator)
    labels = torch.cat([tokens[:, 1:], torch.full((1, 1), -100)], dim=1)
    return Window(layout, tokens, labels, torch.tensor(layout.positions)[None])


def run(
    model: LlamaForCausalLM, window: Window, count: int, mesh: DeviceMesh | None = None, **more: Any
) -> Tensor:
    """Forward and backward of the token-sum loss over a global count; returns the logits."""
    tokens, labels, positions = window.tokens, window.labels, window.positions
    if mesh is not None:
        tokens = ulysses.shard(tokens, mesh, fill=0)
        labels = ulysses.shard(labels, mesh, fill=-100)
        positions = ulysses.shard(positions, mesh, fill=0)
    logits: Tensor = model(
        input_ids=tokens,
        position_ids=positions,
        layout=window.layout,
        sequence_parallel=mesh,
        use_cache=False,
        **more,
    ).logits
    total = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    torch.autograd.backward(total / count)
    return logits.detach()


def gradients(model: LlamaForCausalLM) -> list[Tensor]:
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [grad.full_tensor() if isinstance(grad, DTensor) else grad for grad in found]


def difference(got: list[Tensor], expected: list[Tensor]) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(got, expected, strict=True))


def logits_apart(whole: Tensor, local: Tensor, mesh: DeviceMesh) -> float:
    """What is padded behind the window is nobody's logits."""
    start = mesh.get_local_rank() * local.shape[1]
    expected = whole[:, start : start + local.shape[1]]
    return float((local[:, : expected.shape[1]] - expected).abs().max())


def compare(
    mesh: DeviceMesh,
    layout: AttentionLayout,
    *,
    heads: int = 4,
    key_heads: int = 2,
    checkpointing: bool = False,
    dtype: torch.dtype = torch.float32,
    engine: str | None = None,
) -> Difference:
    window = make_window(layout)
    count = int((window.labels >= 0).sum())
    alone, together = (build(key_heads, heads).to(dtype) for _ in range(2))
    if checkpointing:
        recompute_activations(together)
    whole = run(alone, window, count, engine=engine)
    local = run(together, window, count, mesh, engine=engine)
    summed = gradients(together)
    for gradient in summed:
        dist.all_reduce(gradient, group=mesh.get_group())
    return Difference(logits_apart(whole, local, mesh), difference(summed, gradients(alone)))


def compare_fsdp(mesh: DeviceMesh, *, checkpointing: bool) -> Difference:
    """Two rows of data, each over two ranks, and the parameters sharded over all four."""
    windows = [
        make_window(AttentionLayout.anchor(DOCUMENTS), seed=1),
        make_window(AttentionLayout.interleaved(DOCUMENTS, chunks=3, seed=5), seed=2),
    ]
    count = sum(int((window.labels >= 0).sum()) for window in windows)
    alone, together = build(2), build(2)
    whole = [run(alone, window, count) for window in windows]
    if checkpointing:
        recompute_activations(together)
    everyone = mesh["dp", "sp"]._flatten("everyone")
    modules = [*together.model.layers, together]
    for module in modules:
        fully_shard(module, mesh=everyone)
    for module in modules:
        assert isinstance(module, FSDPModule)
        # FSDP averages over ranks; the loss is already divided by the global count.
        module.set_force_sum_reduction_for_comms(True)
        module.set_gradient_divide_factor(1.0)
    mine = mesh.get_local_rank("dp")
    local = run(together, windows[mine], count, mesh["sp"])
    return Difference(
        logits_apart(whole[mine], local, mesh["sp"]),
        difference(gradients(together), gradients(alone)),
    )


def refusal(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except RopewalkError as error:
        return str(error)
    return "nothing was refused"


def work(rank: int, folder: str) -> None:
    """Runs everything and leaves `rank.json`."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS
    )
    four = init_device_mesh("cpu", (1, 4), mesh_dim_names=("dp", "sp"))["sp"]
    pairs = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "sp"))
    anchor = AttentionLayout.anchor(DOCUMENTS)
    results: dict[str, Difference | str] = {}
    for ranks, mesh in ((2, pairs["sp"]), (4, four)):
        for name, paradigm in PARADIGMS.items():
            results[f"{name}, {ranks} ranks"] = compare(mesh, paradigm(DOCUMENTS))
        results[f"sliding window, {ranks} ranks"] = compare(mesh, anchor.within(20))
        for key_heads in (1, 4):
            what = f"{key_heads} key heads, {ranks} ranks"
            results[what] = compare(mesh, anchor, key_heads=key_heads)
        # 3 key heads cannot be shared by 2 or 4 ranks without copies; 12 query heads can.
        results[f"3 key heads of 12, {ranks} ranks"] = compare(mesh, anchor, heads=12, key_heads=3)
        results[f"checkpointing, {ranks} ranks"] = compare(mesh, anchor, checkpointing=True)
        results[f"reference, {ranks} ranks"] = compare(mesh, anchor, engine="reference")
        results[f"bfloat16, {ranks} ranks"] = compare(mesh, anchor, dtype=torch.bfloat16)
    for checkpointing in (False, True):
        what = "FSDP2 and checkpointing" if checkpointing else "FSDP2"
        results[what] = compare_fsdp(pairs, checkpointing=checkpointing)
    short = make_window(AttentionLayout.anchor([200]))._replace(layout=anchor)
    results["refused: a layout of another length"] = refusal(lambda: run(build(2), short, 1, four))
    results["refused: heads"] = refusal(lambda: run(build(1, 6), make_window(anchor), 1, four))
    results["refused: mesh"] = refusal(
        lambda: build(2)(
            input_ids=make_window(anchor).tokens, layout=anchor, sequence_parallel=pairs
        )
    )
    results["refused: no layout"] = refusal(
        lambda: build(2)(input_ids=make_window(anchor).tokens, sequence_parallel=four)
    )
    Path(folder, f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()
