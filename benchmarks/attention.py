"""The speed of the attention engines, next to full attention and to a user's own code.

    python -m benchmarks.attention cpu      prints a table, writes results/attention_cpu.json
    python -m benchmarks.attention cuda     the same on a GPU, in the sizes of an 8B model

Each line is one forward and backward pass: the median time, the TFLOP/s over the pairs that the
layout visits, how many times faster than the fastest full attention beside the ideal (the ratio of
the areas), the time to build masks or indices (once a batch, not once a layer), and the peak memory
over what the inputs take. The last lines of a length are training steps of a llama with two layers.

On a CPU, it is the processor time of one thread, which other work on the machine disturbs little.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import paragraph
from ropewalk.attention import ENGINES, AttentionLayout, flex, register, varlen
from ropewalk.models.renamed import recompute_activations
from ropewalk.outputs import write_atomically

RESULTS = Path(__file__).parent / "results"
PRODUCTS = 7  # matrix products for a visited pair: two forward, five backward


class Sizes(NamedTuple):
    dtype: torch.dtype
    lengths: tuple[int, ...]
    documents: tuple[str, ...]
    heads: int
    key_heads: int
    head_dim: int
    repeats: int
    longest_dense: int
    """Beyond it a dense mask is not worth waiting for."""
    hidden_size: int
    """The hidden size of the model whose training step is measured."""
    longest_step: int
    """Beyond it the logits alone would fill a GPU."""


SIZES = {
    "cuda": Sizes(
        dtype=torch.bfloat16,
        lengths=(8192, 32_768, 131_072),
        documents=("log-normal", "1024", "4096", "16384"),
        heads=32,
        key_heads=8,
        head_dim=128,
        repeats=5,
        longest_dense=16_384,
        hidden_size=4096,
        longest_step=32_768,
    ),
    "cpu": Sizes(
        dtype=torch.float32,
        lengths=(4096, 8192, 16_384),
        documents=("log-normal", "512"),
        heads=4,
        key_heads=2,
        head_dim=64,
        repeats=2,
        longest_dense=8192,
        hidden_size=256,
        longest_step=16_384,
    ),
}


@dataclass(frozen=True)
class Record:
    what: str
    layout: str
    documents: str
    length: int
    seconds: float
    building_seconds: float
    peak_bytes: int
    tflops: float | None
    """The rate over the visited pairs; a training step has other work too."""
    ideal: float
    """Full attention's area over the layout's."""
    ratio: float = 1.0
    """The fastest full attention's time over this one's."""


class Contender(NamedTuple):
    """Something that attends, as a user would call it."""

    name: str
    build: Callable[[AttentionLayout], Any]
    """Masks or indices, from nothing."""
    forward: Callable[[Tensor, Tensor, Tensor, AttentionLayout, Any], Tensor]


def document_lengths(kind: str, length: int) -> list[int]:
    """All but one token, the anchor's: `log-normal` (median 1k, σ 1.5) or all of one length."""
    left = length - 1
    if kind != "log-normal":
        size = int(kind)
        return [size] * (left // size) + [left % size]
    generator = np.random.default_rng(0)
    lengths = []
    while left:
        lengths.append(min(max(int(generator.lognormal(np.log(1024), 1.5)), 1), left))
        left -= lengths[-1]
    return lengths


def layouts(kind: str, length: int) -> dict[str, AttentionLayout]:
    documents = document_lengths(kind, length)
    return {
        "anchor": AttentionLayout.anchor(documents),
        "intra_document": AttentionLayout.intra_document([*documents, 1]),
        "interleaved": AttentionLayout.interleaved(documents, chunks=4, seed=0),
    }


def full_attention(device: str) -> Iterator[Contender]:
    def forward(backend: SDPBackend | None) -> Callable[..., Tensor]:
        def attend(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
            if backend is None:
                return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        return attend

    if device == "cpu":
        yield Contender("full attention", lambda layout: None, forward(None))
    else:
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            name = f"full attention, {backend.name.removesuffix('_ATTENTION').lower()}"
            yield Contender(name, lambda layout: None, forward(backend))


def dense_mask(device: str) -> Contender:
    return Contender(
        "sdpa, dense mask",
        lambda layout: torch.tensor(layout.mask(), device=device),
        lambda q, k, v, layout, mask: scaled_dot_product_attention(
            q, k, v, attn_mask=mask, enable_gqa=True
        ),
    )


def flex_by_hand(device: str) -> Contender:
    """FlexAttention after its documentation."""

    def build(layout: AttentionLayout) -> Any:
        ids = torch.tensor(layout.document_ids, device=device)

        def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & ((ids[query] == ids[key]) | (ids[key] < 0))

        make = torch.compile(create_block_mask)
        return make(sees, None, None, layout.length, layout.length, device=device)

    compiled = torch.compile(flex_attention)
    return Contender(
        "flex_attention by hand",
        build,
        lambda q, k, v, layout, mask: compiled(q, k, v, block_mask=mask, enable_gqa=True),
    )


def engine(name: str, device: str) -> Contender:
    where = torch.device(device)
    indices: dict[str, Callable[[AttentionLayout], object]] = {
        "varlen": lambda layout: varlen._sequences.__wrapped__(layout, 1, where),
        "flex": lambda layout: flex.block_mask.__wrapped__(layout, where),
        "per_document": lambda layout: layout.order,
    }

    def build(layout: AttentionLayout) -> None:
        # A copy remembers nothing yet.
        indices[name](replace(layout))

    def forward(q: Tensor, k: Tensor, v: Tensor, layout: AttentionLayout, _: Any) -> Tensor:
        return ENGINES[name].attend(q, k, v, layout, scale=q.shape[-1] ** -0.5)

    return Contender(name, build, forward)


def contenders(device: str, name: str, length: int, sizes: Sizes) -> Iterator[Contender]:
    if name == "anchor" and length <= sizes.longest_dense:  # any other mask takes as long
        yield dense_mask(device)
    if device == "cuda":
        yield flex_by_hand(device)
        yield engine("varlen", device)
        yield engine("flex", device)
    yield engine("per_document", device)


class Measured(NamedTuple):
    seconds: float
    building_seconds: float
    peak_bytes: int


def measure(
    device: str, repeats: int, build: Callable[[], Any], work: Callable[[Any], None]
) -> Measured:
    def timed(call: Callable[[], Any]) -> tuple[float, Any]:
        start = _clock(device)
        result = call()
        return _clock(device) - start, result

    before = _peak(device)
    _, made = timed(build)
    work(made)  # compiles, and fills caches
    peak = _peak(device) - before
    building = statistics.median(timed(build)[0] for _ in range(repeats))
    seconds = statistics.median(timed(lambda: work(made))[0] for _ in range(repeats))
    return Measured(seconds, building, peak)


def _clock(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _peak(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def alone(device: str, call: Callable[[], Measured]) -> Measured:
    """On a cpu, in a process of its own: only so does its peak memory start from nothing."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return call()
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(call()))
    process.start()
    measured: Measured = receiver.recv()
    process.join()
    return measured


def attention_pass(
    device: str,
    sizes: Sizes,
    contender: Contender,
    layout: AttentionLayout,
    alone: Callable[[str, Callable[[], Measured]], Measured] = alone,
) -> Measured:
    def tensor(heads: int) -> Tensor:
        # As in a model: heads behind positions in memory.
        shape = (1, layout.length, heads, sizes.head_dim)
        made = torch.randn(shape, device=device, dtype=sizes.dtype).transpose(1, 2)
        return made.requires_grad_()

    def call() -> Measured:
        query, key, value = (tensor(h) for h in (sizes.heads, sizes.key_heads, sizes.key_heads))
        gradient = torch.randn_like(query)

        def work(made: Any) -> None:
            output = contender.forward(query, key, value, layout, made)
            torch.autograd.grad(output, (query, key, value), gradient)

        return measure(device, sizes.repeats, lambda: contender.build(layout), work)

    return alone(device, call)


def training_step(
    device: str, sizes: Sizes, implementation: str, layout: AttentionLayout
) -> Measured:
    def call() -> Measured:
        register()
        config = LlamaConfig(
            vocab_size=32_000 if device == "cuda" else 1024,
            hidden_size=sizes.hidden_size,
            intermediate_size=7 * sizes.hidden_size // 2,
            num_hidden_layers=2,
            num_attention_heads=sizes.heads,
            num_key_value_heads=sizes.key_heads,
            head_dim=sizes.head_dim,
            max_position_embeddings=layout.length,
        )
        model = LlamaForCausalLM._from_config(config, attn_implementation=implementation)
        model = model.to(device, sizes.dtype).train()
        recompute_activations(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        tokens = torch.randint(0, 1024, (1, layout.length), device=device)
        arguments: dict[str, Any] = {"layout": layout} if implementation == "ropewalk" else {}

        def work(_: Any) -> None:
            loss = model(input_ids=tokens, labels=tokens, use_cache=False, **arguments).loss
            torch.autograd.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

        return measure(device, sizes.repeats, lambda: None, work)

    return alone(device, call)


def records(device: str) -> Iterator[Record]:
    sizes = SIZES[device]
    for length in sizes.lengths:
        whole = AttentionLayout.full([length])

        def record(
            what: str, name: str, kind: str, layout: AttentionLayout, got: Measured, full: float
        ) -> Record:
            flops = 2 * PRODUCTS * layout.area() * sizes.head_dim * sizes.heads
            step = what.startswith("training step")
            return Record(
                what=what,
                layout=name,
                documents=kind,
                length=layout.length,
                seconds=got.seconds,
                building_seconds=got.building_seconds,
                peak_bytes=got.peak_bytes,
                tflops=None if step else flops / got.seconds / 1e12,
                ideal=AttentionLayout.full([layout.length]).area() / layout.area(),
                ratio=full / got.seconds,
            )

        timed = [(c, attention_pass(device, sizes, c, whole)) for c in full_attention(device)]
        fastest = min(got.seconds for _, got in timed)
        for contender, got in timed:
            yield record(contender.name, "full", "one", whole, got, fastest)
        for kind in sizes.documents:
            for name, layout in layouts(kind, length).items():
                for contender in contenders(device, name, length, sizes):
                    got = attention_pass(device, sizes, contender, layout)
                    yield record(contender.name, name, kind, layout, got, fastest)
        if length > sizes.longest_step:
            continue
        anchor = layouts("log-normal", length)["anchor"]
        full = training_step(device, sizes, "sdpa", whole)
        yield record("training step, sdpa", "full", "one", whole, full, full.seconds)
        ours = training_step(device, sizes, "ropewalk", anchor)
        yield record("training step, ropewalk", "anchor", "log-normal", anchor, ours, full.seconds)


def row(r: Record) -> str:
    speed = f"{r.tflops:8.3f}" if r.tflops is not None else " " * 8
    return (
        f"{r.length:7} {r.layout:15} {r.documents:11} {r.what:25} {r.seconds:9.4f} s {speed} "
        f"{r.ratio:7.2f} {r.ideal:7.2f} {r.building_seconds / r.seconds:8.2%} "
        f"{r.peak_bytes / 2**20:8.0f}"
    )


def main() -> None:
    device = sys.argv[1] if len(sys.argv) == 2 else ""
    if device not in SIZES:
        sys.exit("usage: python -m benchmarks.attention cpu|cuda")
    torch.set_num_threads(1)
    print(
        f"{'length':>7} {'layout':15} {'documents':11} {'what':25} {'time':>11} {'TFLOP/s':>8} "
        f"{'faster':>7} {'ideal':>7} {'building':>8} {'MiB':>8}"
    )
    sizes = {key: str(value) for key, value in SIZES[device]._asdict().items()}
    where: dict[str, object] = {**machine(), "torch": torch.__version__}
    if device == "cuda":
        where["gpu"] = torch.cuda.get_device_name()
    found: list[dict[str, Any]] = []
    result = {"machine": where, "sizes": sizes, "records": found}
    for record in records(device):
        print(row(record), flush=True)
        found.append(asdict(record))
        write_atomically(RESULTS / f"attention_{device}.json", json.dumps(result, indent=2) + "\n")


def blocks() -> dict[str, str]:
    return {PAGE: f"{on_a_cpu()}\n\n{on_a_gpu()}"}


ON_A_GPU = ("sdpa, dense mask", "flex_attention by hand", "flex", "varlen", "per_document")


def on_a_gpu() -> str:
    """A line a layout, with the milliseconds of all engines side by side."""
    results = json.loads((RESULTS / "attention_cuda.json").read_text())
    full: dict[int, float] = {}
    rows: dict[tuple[int, str, float], dict[str, float]] = {}
    for r in results["records"]:
        length, seconds = r["length"], r["seconds"]
        if r["what"].startswith("training"):
            continue
        if r["layout"] == "full":
            full[length] = min(seconds, full.get(length, seconds))
        if r["layout"] == "anchor":
            rows.setdefault((length, r["documents"], r["ideal"]), {})[r["what"]] = seconds
    lines = [
        f"| length | documents | full attention | {' | '.join(ON_A_GPU)} | ideal |",
        "|---" * (len(ON_A_GPU) + 4) + "|",
    ]
    for (length, documents, ideal), own in rows.items():
        times = [full[length], *(own.get(what) for what in ON_A_GPU)]
        cells = ["" if seconds is None else f"{1000 * seconds:.1f}" for seconds in times]
        lines.append(f"| {length} | {documents} | {' | '.join(cells)} | {ideal:.2f} |")
    where = f"`python -m benchmarks.attention cuda`, on one {results['machine']['gpu']}"
    lines += ["", f"Milliseconds; {where} (torch {results['machine']['torch']})."]
    return "\n".join(lines)


def on_a_cpu() -> str:
    """The layouts that differ most, at all lengths but the shortest."""
    results = json.loads((RESULTS / "attention_cpu.json").read_text())
    found = [Record(**record) for record in results["records"]]
    lines = [
        "| length | layout | documents | what | seconds | times faster than full | ideal | MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.length} | {r.layout} | {r.documents} | {r.what} | {r.seconds:.3f} | {r.ratio:.2f} "
        f"| {r.ideal:.2f} | {r.peak_bytes / 2**20:.0f} |"
        for r in found
        if r.layout in ("full", "anchor") and r.length > found[0].length
    ]
    lines += [
        "",
        paragraph(
            f"{measured_on(results['machine'], 'python -m benchmarks.attention cpu')}; each time "
            f"is the median of {results['sizes']['repeats']} passes."
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
