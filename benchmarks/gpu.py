"""What a CPU cannot run, in one command that resumes; the first half of `make gpu`.

    python -m benchmarks.gpu                  what is missing, for at most 20 minutes on one card
    python -m benchmarks.gpu --device cpu --out FILE    the same code, in sizes of a toy

Each part is kept in results/gpu.json when it is done, so that a run that ended early (or whose 20
minutes were over) goes on with the next part. A part that fails is kept with its error, and the
others run; remove its entry to try it again.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoConfig, AutoModelForCausalLM

import ropewalk as rw
from benchmarks import attention
from benchmarks.machine import machine
from ropewalk.attention import ENGINES, AttentionLayout, interface, reference
from ropewalk.costs.estimates import HALF, SINGLE, Way, Work, evaluating, step
from ropewalk.costs.machines import GIB, Machine
from ropewalk.costs.sizes import sizes_of
from ropewalk.errors import Unsupported
from ropewalk.evaluation.scoring import Scorer
from ropewalk.lengths import format_length
from ropewalk.models import catalogue
from ropewalk.models.renamed import recompute_activations
from ropewalk.outputs import write_atomically
from ropewalk.training.loss import prepare_loss, summed_loss

RESULTS = Path(__file__).with_name("results") / "gpu.json"
LIMIT = 20 * 60
NOT_WORSE = 1.1
"""An engine may be this many times as far from the truth as a dense mask in the same format, as in
the conformance suite (tests/attention)."""
_ENTRY = catalogue.find("llama-3.1-8b")
SHAPE: dict[str, Any] = {**_ENTRY.config, **_ENTRY.sizes}
TOY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256,
    "max_position_embeddings": 8192, "rope_theta": 1e4, "tie_word_embeddings": False,
}  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """The sizes of the parts on a device."""

    device: str
    config: dict[str, Any]
    sizes: attention.Sizes
    formats: tuple[torch.dtype, ...]
    layers: tuple[int, ...]
    windows: tuple[int, ...]
    evaluated: int
    arms: tuple[str, ...]
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Settings that make the precision measurement smaller than usual."""
    compared: int = 512
    """The length at which engines are compared with the reference."""


SCALES = {
    "cuda": Scale(
        "cuda", SHAPE, attention.SIZES["cuda"],
        (torch.bfloat16, torch.float16, torch.float32), (1, 2, 4), (8192, 32768), 131072,
        ("fp32", "bf16", "bf16_model", "fp16", "tf32_angles", "tf32"),
    ),
    "cpu": Scale(
        "cpu", TOY, attention.SIZES["cpu"],
        (torch.bfloat16, torch.float32), (1,), (128,), 4608, ("fp32", "bf16"),
        {"length": 128, "sequences": 1}, compared=64,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One measurement, and how long it should take at most on an H100."""

    name: str
    minutes: float
    measure: Callable[[], dict[str, Any]]


COMPARED = "engines next to the reference"


def _step(layers: int, window: int, recompute: bool) -> str:
    told = f"step, {layers} layers, {format_length(window)}"
    return f"{told}, recomputed" if recompute else told


def parts(scale: Scale) -> Iterator[Part]:
    yield Part(COMPARED, 2, partial(compared, scale))
    for count in scale.layers:
        for window in scale.windows:
            for recompute in (False, True):
                measure = partial(trained, scale, count, window, recompute=recompute)
                yield Part(_step(count, window, recompute), 0.5, measure)
    yield Part(f"evaluation at {format_length(scale.evaluated)}", 3, partial(evaluated, scale))
    yield Part("number formats", 3, partial(formats, scale))


# --- engines ---------------------------------------------------------------------------------


def compared(scale: Scale) -> dict[str, Any]:
    """The error of each engine's output and gradients, over that of a dense mask."""
    found: dict[str, Any] = {}
    documents = [scale.compared // 4] * 3 + [scale.compared // 4 - 1]
    layouts = {
        "full": AttentionLayout.full([scale.compared]),
        "anchor": AttentionLayout.anchor(documents),
        "intra_document": AttentionLayout.intra_document([*documents, 1]),
        "interleaved": AttentionLayout.interleaved(documents, chunks=2, seed=0),
    }
    for name, layout in layouts.items():
        given = _tensors(scale, layout.length)
        truth = _passed(reference.attend, given, layout, torch.float64, "cpu")
        for dtype in scale.formats:
            dense = _errors(_passed(_dense, given, layout, dtype, scale.device), truth)
            for engine in (each for each in ENGINES.values() if each.attend != reference.attend):
                key = f"{engine.name}, {name}, {str(dtype).removeprefix('torch.')}"
                try:
                    passed = _passed(engine.attend, given, layout, dtype, scale.device)
                except Unsupported as error:
                    found[key] = {"cannot": str(error)}
                    continue
                own = _errors(passed, truth)
                worst = max(mine / max(usual, 1e-5) for mine, usual in zip(own, dense, strict=True))
                found[key] = {"times_dense": worst, "agrees": worst <= NOT_WORSE}
    return found


def _tensors(scale: Scale, length: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    heads, keys, width = scale.sizes.heads, scale.sizes.key_heads, scale.sizes.head_dim
    shapes = [(1, count, length, width) for count in (heads, keys, keys, heads)]
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


def _passed(
    attend: Any, given: tuple[Tensor, ...], layout: AttentionLayout, dtype: torch.dtype, device: str
) -> list[Tensor]:
    *inputs, gradient = (each.to(device, dtype, copy=True) for each in given)
    wanted = [each.requires_grad_() for each in inputs]
    output = attend(*wanted, layout, scale=gradient.shape[-1] ** -0.5)
    gradients = torch.autograd.grad(output, wanted, gradient)
    return [each.detach().double().cpu() for each in (output, *gradients)]


def _dense(
    query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, *, scale: float
) -> Tensor:
    mask = torch.tensor(layout.mask(), device=query.device)
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=True
    )


def _errors(own: list[Tensor], truth: list[Tensor]) -> list[float]:
    pairs = zip(own, truth, strict=True)
    return [float((a - b).norm() / b.norm()) for a, b in pairs]


# --- a model ---------------------------------------------------------------------------------


def _model(scale: Scale, config: dict[str, Any], dtype: torch.dtype) -> Any:
    given = dict(config)
    made = AutoConfig.for_model(given.pop("model_type"), **given)
    torch.manual_seed(0)
    with torch.device(scale.device):
        return AutoModelForCausalLM.from_config(made, dtype=dtype)


def _work(scale: Scale, config: dict[str, Any], length: int) -> Work:
    number = HALF if scale.device == "cuda" else SINGLE
    return Work(sizes_of(config), length, Machine(scale.device, 1, 0), length, number)


def _measured(scale: Scale, way: Way, call: Callable[[], None]) -> dict[str, Any]:
    """The second call's time; the peak of memory, if the device tells, and the formula's."""
    call()
    seconds = attention._clock(scale.device)
    call()
    seconds = attention._clock(scale.device) - seconds
    peak = torch.cuda.max_memory_allocated() if scale.device == "cuda" else None
    return {"seconds": seconds, "bytes": peak, "calculated": sum(way.parts.values())}


def trained(scale: Scale, layers: int, window: int, *, recompute: bool) -> dict[str, Any]:
    """A step of AdamW on all weights: float32, with products in bfloat16 on a GPU."""
    config = {**scale.config, "num_hidden_layers": layers}
    work = _work(scale, config, window)
    way = step(work, 1, 1, recompute=recompute, lora=False, window=window)
    interface.register()
    model = _model(scale, config, torch.float32)
    model.set_attn_implementation(interface.NAME)
    if recompute:
        recompute_activations(model)
    prepare_loss(model)
    model.train()
    layout = AttentionLayout.full([window])
    tokens = torch.randint(config["vocab_size"], (1, window), device=scale.device)
    positions = torch.tensor(layout.positions, device=scale.device)[None]
    optimizer = torch.optim.AdamW(model.parameters())

    def call() -> None:
        inputs = {"input_ids": tokens, "position_ids": positions, "layout": layout}
        with torch.autocast(scale.device, torch.bfloat16, enabled=scale.device == "cuda"):
            loss = summed_loss(model, tokens, inputs) / window
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    return _measured(scale, way, call)


def evaluated(scale: Scale) -> dict[str, Any]:
    """One document of the whole length, read in chunks by a model of random weights."""
    length = scale.evaluated
    way = next(evaluating(_work(scale, scale.config, length)))
    dtype = torch.bfloat16 if scale.device == "cuda" else torch.float32
    scorer = Scorer(_model(scale, scale.config, dtype).eval(), in_chunks=True)
    tokens = torch.randint(scale.config["vocab_size"], (length,)).numpy()
    return _measured(scale, way, lambda: [*scorer.score([tokens], [length - 16])].clear())


def formats(scale: Scale) -> dict[str, Any]:
    """The number formats that the device has, on the bundled model."""
    found = rw.precision(
        "bundled", quick=True, arms=scale.arms, device=scale.device, **scale.measured
    )
    return {"summary": found.summary()}


# --- the run ---------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=sorted(SCALES), default="cuda")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no GPU here; --device cpu --out FILE runs a toy")
    if asked.device == "cpu" and asked.out == RESULTS:
        parser.error("the toy needs a file of its own: --out FILE")
    if not asked.out.parent.is_dir():
        parser.error(f"{asked.out.parent} is no folder; make it, or give another --out")
    run(SCALES[asked.device], asked.out)


def run(scale: Scale, out: Path) -> None:
    began = time.monotonic()
    where: dict[str, Any] = {**machine(), "torch": torch.__version__}
    if scale.device == "cuda":
        where["gpu"] = torch.cuda.get_device_name()
    try:
        kept: dict[str, Any] = json.loads(out.read_text("utf-8")) if out.exists() else {}
    except ValueError as error:
        raise SystemExit(f"{out} is damaged ({error}); move it away first") from None
    if kept and kept["machine"] != where:
        raise SystemExit(f"{out} is of another machine ({kept['machine']}); move it away first")
    kept = kept or {"machine": where, "parts": {}}
    for part in parts(scale):
        if "failed" not in kept["parts"].get(part.name, {"failed": "not run"}):
            continue
        if time.monotonic() - began + 60 * part.minutes > LIMIT:
            print(f"{part.name}: would end after {LIMIT // 60} minutes; run this again", flush=True)
            return
        gc.collect()  # a model that was trained is part of a cycle
        if scale.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        start = time.monotonic()
        try:
            found = part.measure()
        except Exception as error:  # one part's failure is a result too
            found = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        kept["parts"][part.name] = {"took": round(time.monotonic() - start, 1), **found}
        write_atomically(out, json.dumps(kept, indent=1) + "\n")
        print(f"{part.name}: {kept['parts'][part.name]['took']} s", flush=True)
    if failed := [name for name, found in kept["parts"].items() if "failed" in found]:
        raise SystemExit(f"failed: {', '.join(failed)}; the reasons are in {out}")


def blocks() -> dict[str, str]:
    kept, scale = json.loads(RESULTS.read_text("utf-8")), SCALES["cuda"]
    done = {name: found for name, found in kept["parts"].items() if "failed" not in found}
    missing = [part.name for part in parts(scale) if part.name not in done]
    lines = ["| layers | window | seconds | GiB | calculated | recomputed | GiB | calculated |"]
    lines.append("|---" * 8 + "|")
    for count in scale.layers:
        for window in scale.windows:
            names = [_step(count, window, recompute) for recompute in (False, True)]
            cells = [cell for name in names for cell in _cells(done.get(name))]
            lines.append(f"| {count} | {format_length(window)} | {' | '.join(cells)} |")
    lines.append("")
    if (agreement := done.get(COMPARED)) is not None:
        lines.append(_errors_told(agreement))
    lines.append(f"Not run: {', '.join(missing) or 'nothing'}. On one {kept['machine']['gpu']}.")
    return {"docs/cost.md": "\n".join(lines)}


def _cells(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return [""] * 3
    sizes = (f"{found[key] / GIB:.1f}" for key in ("bytes", "calculated"))
    return [f"{found['seconds']:.2f}", *sizes]


def _errors_told(found: dict[str, Any]) -> str:
    told = []
    for engine in ENGINES:
        own = [each for name, each in found.items() if name.startswith(f"{engine},")]
        if errors := [each["times_dense"] for each in own if "times_dense" in each]:
            told.append(f"{engine} {max(errors):.2f}")
    return f"Errors of engines, over those of a dense mask: {', '.join(told)} at most."


if __name__ == "__main__":
    main()
