"""The change in logits with a sequence spread over four processes: Ulysses, and torch's own ring.

    python -m benchmarks.sequence_parallel     prints a table, writes results/sequence_parallel.json

A llama of four layers reads one window of full causal attention, by itself and over four gloo
processes. The ring is the core of torch's context parallel, which passes keys on and merges partial
results by log-sum-exp. Its public face, `context_parallel`, refuses to run on a CPU, so the core is
called with torch's CPU kernel, without load balancing.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.experimental._context_parallel import _attention as context_parallel
from torch.multiprocessing.spawn import spawn
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

from benchmarks.machine import PAGE, machine, measured_on
from ropewalk.attention import AttentionLayout, register, ulysses

RANKS, LENGTH = 4, 2048
RESULTS = Path(__file__).with_name("results") / "sequence_parallel.json"
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def ring(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: object, **arguments: Any
) -> tuple[Tensor, None]:
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))

    def kernel(query: Tensor, key: Tensor, value: Tensor, **options: object) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, scale=arguments["scaling"], **options
        )
        return found

    context_parallel._cp_options.enable_load_balance = False
    output, *_ = context_parallel._templated_ring_attention(
        dist.distributed_c10d._get_default_group(), 2, kernel, query, key, value, is_causal=True
    )
    return output.transpose(1, 2).contiguous(), None


def model(dtype: torch.dtype) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
    )
    torch.manual_seed(0)
    built = LlamaForCausalLM._from_config(config, attn_implementation="ropewalk")
    return built.to(dtype).eval()


@torch.no_grad()
def apart(dtype: torch.dtype, mesh: DeviceMesh) -> dict[str, float]:
    """The largest difference from one process, on any rank."""
    layout = AttentionLayout.full([LENGTH])
    tokens = torch.randint(0, 512, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    local = ulysses.shard(tokens, mesh, fill=0)
    positions = ulysses.shard(torch.tensor(layout.positions)[None], mesh, fill=0)
    whole = model(dtype)(input_ids=tokens, layout=layout, use_cache=False).logits
    expected = ulysses.shard(whole, mesh, fill=0)
    shared = model(dtype)
    arguments: dict[str, Any] = {"input_ids": local, "position_ids": positions, "use_cache": False}
    found = {"ulysses": shared(**arguments, layout=layout, sequence_parallel=mesh).logits}
    shared.set_attn_implementation("ring")
    found["ring"] = shared(**arguments).logits
    result = {"largest logit": float(whole.abs().max())}
    for name, logits in found.items():
        largest = (logits - expected).abs().max().float()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        result[name] = float(largest)
    return result


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("sp",))
    register()
    AttentionInterface.register("ring", ring)
    found = {name: apart(dtype, mesh) for name, dtype in TYPES.items()}
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (folder,), nprocs=RANKS)  # type: ignore[no-untyped-call]
        found = json.loads(Path(folder, "found.json").read_text())
    print(f"{'':10}{'ulysses':>12}{'ring':>12}{'largest logit':>16}")
    for name, row in found.items():
        print(f"{name:10}{row['ulysses']:12.3g}{row['ring']:12.3g}{row['largest logit']:16.3g}")
    result = {
        "machine": {**machine(), "torch": torch.__version__},
        "ranks": RANKS,
        "length": LENGTH,
        "largest_logit_difference": found,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


def blocks() -> dict[str, str]:
    results = json.loads(RESULTS.read_text())
    lines = ["| | Ulysses | torch's ring | largest logit |", "|---|---|---|---|"]
    for name, row in results["largest_logit_difference"].items():
        shown = (f"{row[of]:.2g}" for of in ("ulysses", "ring", "largest logit"))
        lines.append(f"| {name} | {' | '.join(shown)} |")
    lines += ["", measured_on(results["machine"], "python -m benchmarks.sequence_parallel") + "."]
    return {PAGE: "\n".join(lines)}


if __name__ == "__main__":
    main()
