"""The measurements that wait for a GPU, by their value: `make gpu`, in 13 minutes on one card.

    python -m benchmarks.gpu                  what is missing; started again, it resumes
    python -m benchmarks.gpu --device cpu --out FILE    the same code, in sizes of a toy

Each part has the longest time it may take, and its question with the rule that decides it, written
down before the first run. What a part has found is kept in results/gpu.json item by item, with the
card, the driver and the versions; a part that ended too early, or failed, goes on with what is
missing. For a machine without a network, see benchmarks/gpu_bundle.py.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoConfig, AutoModelForCausalLM

import ropewalk as rw
from benchmarks import attention
from benchmarks.machine import PAGE, machine
from ropewalk.attention import ENGINES, AttentionLayout, cached, interface, reference
from ropewalk.costs.machines import GIB, Machine
from ropewalk.costs.memory_and_time import HALF, SINGLE, Workload, reading, step
from ropewalk.costs.sizes import sizes_of
from ropewalk.data.windows import Arrangement
from ropewalk.errors import Unsupported
from ropewalk.evaluation.scoring import Scorer
from ropewalk.lengths import format_length, parse_length
from ropewalk.models import catalogue
from ropewalk.models.renamed import recompute_activations
from ropewalk.outputs import write_atomically
from ropewalk.progress import Status
from ropewalk.records import is_main_answer
from ropewalk.training.loss import prepare_loss, summed_loss
from studies.smollm2.model import converted

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
LIMIT, LEAST = 13 * 60, 15
"""Seconds of a run, and the least that must be left for another part to begin."""
NOT_WORSE = 1.1
"""An engine may be this many times as far from the truth as a dense mask in the same format, as in
the conformance suite (tests/attention)."""
TEXT = ROOT / "runs" / "gpu"
GEMMA = ROOT / "runs" / "gemma-3-270m"
FACTS = ("needle", "passkey", "lines", "kv")
"""Single facts, in the order in which one is looked for that the model neither always finds nor
hardly ever."""
TIMED = 3
"""Steps by whose time the number of all is chosen: more than those of the warm-up."""
METHODS = ("linear", "ntk", "yarn", "llama3")
LAYOUTS: tuple[Arrangement, ...] = ("anchor", "intra", "full")
_ENTRY = catalogue.find("llama-3.1-8b")
SHAPE: dict[str, Any] = {**_ENTRY.config, **_ENTRY.sizes}
TOY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256,
    "max_position_embeddings": 8192, "rope_theta": 1e4, "tie_word_embeddings": False,
}  # fmt: skip


def prepared_text(part: str) -> str:
    """Text that SmolLM2 is trained on or asked about; other text than any study's of its own."""
    file = TEXT / f"{part}.jsonl"
    if not file.exists():
        from benchmarks.text import read_text
        from studies.bundled_model.corpus import read_corpus

        documents = [each.text for each in getattr(read_text(), part)]
        if part == "tuning":
            documents += read_corpus().training.values()
        TEXT.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"text": document}) + "\n" for document in documents]
        write_atomically(file, "".join(lines))
    return str(file)


@dataclass(frozen=True)
class Scale:
    """The sizes of the parts on a device."""

    device: str
    config: dict[str, Any]
    sizes: attention.Sizes
    formats: tuple[torch.dtype, ...]
    compared: int
    """The length at which engines are compared with the reference."""
    aligned: tuple[tuple[int, int], ...]
    """Queries, and keys of the cache with them."""
    read: tuple[int, ...]
    warm: int
    """A length whose first forward is not timed."""
    layers: tuple[int, ...]
    windows: tuple[int, ...]
    model: Callable[[], str]
    text: Callable[[str], str]
    dtype: str
    window: int
    """The length that the model was trained for; it is extended to twice that."""
    samples: tuple[int, int]
    """For choosing a fact, and at the target."""
    known: tuple[float, float]
    """The share of facts that the unmodified model finds within its window."""
    training: Mapping[str, Any]
    seconds: float
    """Of the slowest training."""
    searched: Mapping[str, Any]
    patience: float
    """Times that a part may take as long as on an H100."""
    arms: tuple[str, ...]
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Settings that make the precision measurement smaller than usual."""

    @property
    def target(self) -> int:
        return 2 * self.window


SCALES = {
    "cuda": Scale(
        "cuda", SHAPE, attention.SIZES["cuda"],
        (torch.bfloat16, torch.float16, torch.float32), 512,
        ((7, 50), (512, 1536), (1024, 1024)), (32768, 131072), 8192,
        (1, 3), (65536, 131072),
        lambda: str(converted()), prepared_text, "bfloat16", 8192, (24, 48), (0.5, 0.95),
        {"batch": 4, "learning_rate": 2e-5, "warmup": 2}, 80.0,
        {"budget": 40}, 1.0, ("fp32", "bf16", "bf16_model", "fp16", "tf32_angles", "tf32"),
    ),
    "cpu": Scale(
        "cpu", TOY, attention.SIZES["cpu"], (torch.bfloat16, torch.float32), 64,
        ((7, 50),), (4608,), 128, (1, 2), (128,),
        lambda: "bundled", lambda part: str(ROOT / "ropewalk/data/held_out/statistics.txt"),
        "float32", 512, (1, 2), (0.0, 1.0),
        {"batch": 1, "learning_rate": 2e-5, "warmup": 2}, 0.0,
        {"budget": 1, "documents": (1, 1, 1)}, 5.0, ("fp32", "bf16"),
        {"length": 128, "sequences": 1},
    ),
}  # fmt: skip

Item = tuple[str, Callable[[], Any]]
"""What a part finds, by name, and how."""


@dataclass(frozen=True)
class Part:
    """One question, and the rule that answers it."""

    name: str
    seconds: int
    """The longest it may take on an H100."""
    question: str
    rule: str
    page: str
    """Where the answer goes."""
    items: Callable[[Mapping[str, Any]], Iterator[Item]]
    """Given those that were found before it."""
    needs: Path | None = None
    """A part without it is left out."""


def parts(scale: Scale, place: Path) -> list[Part]:
    """By their value; `place` keeps runs of ropewalk, which resume by themselves."""
    lengths = " and ".join(map(format_length, scale.read))
    windows = " and ".join(map(format_length, scale.windows))
    target = format_length(scale.target)
    return [
        Part(
            "chunks without a mask", 90,
            "Do torch's kernels align fewer queries with a cache at the lower right, and does an "
            f"evaluation of the 8B shape at {lengths} take as long in chunks as in one forward "
            "with flash?",
            f"aligned: at most {NOT_WORSE} times as far from float64 as a dense mask; as fast: at "
            "most 1.3 times the seconds at each length; peak memory at most what `cost` says",
            PAGE, partial(chunks, scale),
        ),
        Part(
            "engines", 60,
            "Do the attention engines compute on this card what the reference does?",
            f"every test of tests/attention for a GPU passes; {NOT_WORSE} as above",
            PAGE, partial(engines, scale),
        ),
        Part(
            "methods", 90,
            f"Which hand-designed method retrieves more at {target}, by SmolLM2-135M?",
            f"the fact is the first of {', '.join(FACTS)} that the unmodified model finds in "
            f"{scale.known[0]:.0%} to {scale.known[1]:.0%} of {scale.samples[0]} samples at "
            f"{format_length(scale.window)}; of {scale.samples[1]} samples at {target}, yarn minus "
            "linear, paired, is decided if its 95% interval excludes 0; other pairs are secondary",
            "studies/smollm2/README.md", partial(methods, scale, place),
        ),
        Part(
            "layouts", 360,
            f"After as many tokens, does SmolLM2 under yarn retrieve more at {target} if trained "
            "with anchor than with full, as AnchorAttention claims?",
            f"steps of {target} by the time of `full`, at most {scale.seconds:.0f} s; the fact and "
            "the samples of `methods`; anchor minus full, paired: seen if the interval lies above "
            "0, contradicted if below; intra is secondary",
            "studies/smollm2/README.md", partial(layouts, scale, place),
        ),
        Part(
            "training step", 60,
            f"Does a training step of the 8B shape at {windows} under anchor take less than half "
            "of the time under full, as Fig. 6 of AnchorAttention says?",
            f"from {scale.layers[0]} and {scale.layers[1]} layers to {SHAPE['num_hidden_layers']}, "
            "linearly: seen if at most 0.5 at the longest window; `cost` is right if its share is "
            "within 0.1",
            PAGE, partial(trained, scale),
        ),
        Part(
            "Gemma 3 270M", 60,
            "Does Gemma 3 270M, if its folder is there, retrieve at 64k under yarn?",
            "seen if the lower end of the interval of the rate lies above 0.5",
            "docs/families.md", partial(gemma, scale, place), GEMMA,
        ),
        Part(
            "search", 120,
            f"Does a search beat yarn on SmolLM2 at {target}?",
            "the search's own verdict on its reporting documents",
            "studies/smollm2/README.md", partial(searched, scale, place),
        ),
        Part(
            "number formats", 30, "What do this card's number formats do to relative positions?",
            "no rule: a description", PAGE, partial(formats, scale),
        ),
    ]  # fmt: skip


# --- attention -------------------------------------------------------------------------------


def chunks(scale: Scale, found: Mapping[str, Any]) -> Iterator[Item]:
    for queries, keys in scale.aligned:
        for near in (None, keys // 3):
            for kernel in (cached._varlen, cached._lower_right):
                name = f"{kernel.__name__.strip('_')}, {queries} of {keys}, window {near}"
                yield name, partial(_aligned, scale, kernel, queries, keys, near)
    loaded = cache(partial(_model, scale, scale.config, getattr(torch, scale.dtype)))
    for length in map(format_length, scale.read):
        for in_chunks, way in ((True, "chunks"), (False, "whole")):
            yield f"{way}, {length}", partial(_read, scale, loaded, parse_length(length), in_chunks)
        both = [f"chunks, {length}", f"whole, {length}"]
        yield f"over whole, {length}", partial(_times, found, *both)


def _times(found: Mapping[str, Any], first: str, second: str) -> float:
    return float(found[first]["seconds"] / found[second]["seconds"])


def _aligned(
    scale: Scale, kernel: Any, queries: int, keys: int, near: int | None
) -> dict[str, Any]:
    """The error of a kernel over that of a dense mask, each next to float64."""
    query, key, value, _ = _tensors(scale, keys)
    query, last = query[:, :, -queries:], keys - queries
    ones = torch.ones(queries, keys, dtype=torch.bool)
    mask = ones.tril(last) & ones.triu(last - near + 1 if near else -keys)
    width = query.shape[-1] ** -0.5

    def dense(dtype: torch.dtype, device: str) -> Tensor:
        q, k, v = (each.to(device, dtype) for each in (query, key, value))
        output = scaled_dot_product_attention(
            q, k, v, attn_mask=mask.to(device), scale=width, enable_gqa=True
        )
        return output.double().cpu()

    dtype = scale.formats[0]
    truth, usual = dense(torch.float64, "cpu"), dense(dtype, scale.device)
    given = (each.to(scale.device, dtype) for each in (query, key, value))
    try:
        own = kernel(*given, width, near).double().cpu()
    except Exception as error:  # of one kernel: the other, and the evaluation, are measured still
        return {"cannot": f"{type(error).__name__}: {error}"[:500]}
    return _over_dense(_errors([own], [truth]), _errors([usual], [truth]))


def _read(scale: Scale, loaded: Callable[[], Any], length: int, in_chunks: bool) -> dict[str, Any]:
    """One text read by a model of random weights, in chunks or in one forward with flash."""
    scorer = Scorer(loaded(), in_chunks=in_chunks)
    tokens = torch.randint(scale.config["vocab_size"], (length,)).numpy()
    flash = not in_chunks and scale.device == "cuda"
    parts = reading(_work(scale, scale.config, length), in_chunks=in_chunks)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if flash else nullcontext():
        measured = _measured(
            scale,
            parts,
            lambda: scorer.score([tokens[: scale.warm]], [scale.warm - 16]),
            lambda: scorer.score([tokens], [length - 16]),
        )
    attention = scorer._reader._attention if in_chunks else "flash" if flash else "stock"
    return {**measured, "attention": attention}


def engines(scale: Scale, found: Mapping[str, Any]) -> Iterator[Item]:
    tests = ROOT / "tests" / "attention" / "test_engines.py"
    there = tests.exists() and all(map(importlib.util.find_spec, ("pytest", "hypothesis")))
    documents = [scale.compared // 4] * 3 + [scale.compared // 4 - 1]
    layouts = {
        "full": AttentionLayout.full([scale.compared]),
        "anchor": AttentionLayout.anchor(documents),
        "intra_document": AttentionLayout.intra_document([*documents, 1]),
        "interleaved": AttentionLayout.interleaved(documents, chunks=2, seed=0),
    }
    for name, layout in layouts.items():
        yield name, partial(_compared, scale, layout)
    for engine in ("varlen", "per_document", "flex") if there else ():
        yield f"tests of {engine}", partial(_tested, tests, f"on_a_gpu and {engine}")


def _tested(tests: Path, chosen: str) -> dict[str, Any]:
    fast = "settings.register_profile('fast', derandomize=True, deadline=None, max_examples=16)"
    program = (
        f"import sys; from hypothesis import settings; {fast}; settings.load_profile('fast'); "
        "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    )
    asked = [
        "-o",
        "addopts=",
        "-o",
        "markers=slow",
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-k",
        chosen,
        str(tests),
    ]
    ended = subprocess.run(
        [sys.executable, "-c", program, *asked], cwd=ROOT, capture_output=True, text=True
    )
    lines = ended.stdout.strip().splitlines() or [ended.stderr[-2000:]]
    said = [line for line in lines if line.startswith(("E  ", "FAILED", "ERROR"))]
    return {"pytest": lines[-1].strip("= "), **({"said": said[:60]} if ended.returncode else {})}


def _compared(scale: Scale, layout: AttentionLayout) -> dict[str, Any]:
    """The error of each engine's output and gradients, over that of a dense mask."""
    given, found = _tensors(scale, layout.length), {}
    truth = _passed(reference.attend, given, layout, torch.float64, "cpu")
    for dtype in scale.formats:
        dense = _errors(_passed(_dense, given, layout, dtype, scale.device), truth)
        for engine in (each for each in ENGINES.values() if each.attend != reference.attend):
            key = f"{engine.name}, {str(dtype).removeprefix('torch.')}"
            try:
                passed = _passed(engine.attend, given, layout, dtype, scale.device)
            except Unsupported as error:
                found[key] = {"cannot": str(error)}
            else:
                found[key] = _over_dense(_errors(passed, truth), dense)
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


def _over_dense(own: list[float], dense: list[float]) -> dict[str, Any]:
    worst = max(mine / max(usual, 1e-5) for mine, usual in zip(own, dense, strict=True))
    return {"times_dense": worst, "agrees": worst <= NOT_WORSE}


# --- the shape of a large model ----------------------------------------------------------------


def _model(scale: Scale, config: dict[str, Any], dtype: torch.dtype) -> Any:
    given = dict(config)
    made = AutoConfig.for_model(given.pop("model_type"), **given)
    torch.manual_seed(0)
    with torch.device(scale.device):
        return AutoModelForCausalLM.from_config(made, dtype=dtype).eval()


def _work(scale: Scale, config: dict[str, Any], length: int) -> Workload:
    number = HALF if scale.device == "cuda" else SINGLE
    return Workload(sizes_of(config), length, Machine(scale.device, 1, 0), length, number)


def _measured(
    scale: Scale, parts: Mapping[str, float], warm: Callable[[], Any], call: Callable[[], Any]
) -> dict[str, Any]:
    """The time after a first call; the peak of memory, if the device tells, and the formula's."""
    warm()
    if scale.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = attention._clock(scale.device)
    call()
    seconds = attention._clock(scale.device) - seconds
    peak = torch.cuda.max_memory_allocated() if scale.device == "cuda" else None
    return {"seconds": seconds, "bytes": peak, "calculated": sum(parts.values())}


def trained(scale: Scale, found: Mapping[str, Any]) -> Iterator[Item]:
    for window in scale.windows:
        for layers in scale.layers:
            for layout in ("anchor", "full"):
                name = _step(layout, layers, window)
                yield name, partial(_trained, scale, layout, layers, window)
        name = f"anchor over full, {format_length(window)}"
        yield name, partial(_extrapolated, scale, found, window)


def _step(layout: str, layers: int, window: int) -> str:
    return f"{layout}, {layers} layers, {format_length(window)}"


def _extrapolated(scale: Scale, found: Mapping[str, Any], window: int) -> float:
    """The times of a step of all layers, from those of few."""
    few, some = scale.layers

    def seconds(layout: str) -> float:
        less, more = (
            float(found[_step(layout, count, window)]["seconds"]) for count in (few, some)
        )
        more_layers = int(SHAPE["num_hidden_layers"]) - few
        return less + more_layers * (more - less) / (some - few)

    return seconds("anchor") / seconds("full")


def _trained(scale: Scale, layout: str, layers: int, window: int) -> dict[str, Any]:
    """A step of AdamW on all weights, recomputed: float32, with products in bfloat16 on a GPU."""
    config = {**scale.config, "num_hidden_layers": layers}
    way = step(_work(scale, config, window), 1, 1, recompute=True, lora=False, window=window)
    interface.register()
    model = _model(scale, config, torch.float32)
    model.set_attn_implementation(interface.NAME)
    recompute_activations(model)
    prepare_loss(model)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())

    def call(length: int) -> None:
        laid = AttentionLayout.full([length])
        if layout == "anchor":
            laid = attention.layouts("log-normal", length)["anchor"]
        tokens = torch.randint(config["vocab_size"], (1, length), device=scale.device)
        positions = torch.tensor(laid.positions, device=scale.device)[None]
        inputs = {"input_ids": tokens, "position_ids": positions, "layout": laid}
        with torch.autocast(scale.device, torch.bfloat16, enabled=scale.device == "cuda"):
            loss = summed_loss(model, tokens, inputs) / length
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    return _measured(scale, way.parts, lambda: call(min(window, scale.warm)), lambda: call(window))


# --- a known model -----------------------------------------------------------------------------


def _asked(
    scale: Scale, model: str, run: Path, tasks: Sequence[str], length: int, count: int, **how: Any
) -> Any:
    return rw.evaluate(
        model, tasks=tasks, lengths=(length,), samples=count, corpus=scale.text("reporting"),
        run=run, dtype=scale.dtype, device=scale.device, progress=None, **how,
    )  # fmt: skip


def _fact(scale: Scale, place: Path) -> dict[str, Any]:
    """The rates of the unmodified model within its window, and the fact that they choose."""
    run, count = place / "untouched", scale.samples[0]
    rates = _rates(_asked(scale, scale.model(), run, FACTS, scale.window, count), "task")
    low, high = scale.known
    known = [fact for fact in FACTS if fact in rates and low <= rates[fact]["rate"] <= high]
    return {"rates": rates, "fact": known[0] if known else None}


def _known_fact(scale: Scale, place: Path) -> str:
    fact = _fact(scale, place)["fact"]
    if fact is None:
        raise ValueError("no fact has a rate within the rule's; see the item before")
    return str(fact)


def _retrieved(scale: Scale, place: Path, name: str, model: str, **how: Any) -> Any:
    tasks, count = (_known_fact(scale, place),), scale.samples[1]
    return _asked(scale, model, place / name, tasks, scale.target, count, **how)


def _rates(found: Any, by: str) -> dict[str, Any]:
    return {
        getattr(own, by): {"rate": own.value, "low": own.estimate.low, "high": own.estimate.high}
        for own in found.results
        if is_main_answer(own)
    }


def methods(scale: Scale, place: Path, found: Mapping[str, Any]) -> Iterator[Item]:
    yield f"unmodified, {format_length(scale.window)}", partial(_fact, scale, place)

    def extended() -> dict[str, Any]:
        how = {"methods": METHODS, "to": scale.target}
        own = _retrieved(scale, place, "methods", scale.model(), **how)
        pairs = {
            f"{each.first.method} minus {each.second.method}": str(each.comparison)
            for each in own.comparisons
        }
        return {"rates": _rates(own, "method"), "differences": pairs}

    yield f"extended, {format_length(scale.target)}", extended


def layouts(scale: Scale, place: Path, found: Mapping[str, Any]) -> Iterator[Item]:
    yield "fact", partial(_known_fact, scale, place)  # before training: without one it is in vain
    yield "steps", lambda: max(TIMED, int(scale.seconds / _seconds_of_a_step(scale, place)))
    for layout in LAYOUTS:
        yield f"trained, {layout}", partial(_run, scale, place, layout, lambda: found["steps"])
    for layout in LAYOUTS:
        yield f"retrieved, {layout}", partial(_after, scale, place, layout, lambda: found["steps"])
    for layout in LAYOUTS[:-1]:
        both = (place / f"retrieved-{layout}", place / "retrieved-full")
        yield f"{layout} minus full", partial(_difference, *both)


def _run(
    scale: Scale, place: Path, layout: Arrangement, steps: Callable[[], int], **how: Any
) -> Any:
    done = rw.train(
        scale.model(), corpus=scale.text("tuning"), layout=layout, steps=steps(),
        plan=rw.plan(scale.model(), scale.target, "yarn").plan, run=place / layout,
        device=scale.device, progress=how.get("progress"), **scale.training,
    )  # fmt: skip
    last = done.stages[-1]
    return {"tokens": last.steps[-1].tokens, "epochs": last.epochs, "loss": last.loss_in_words()}


def _seconds_of_a_step(scale: Scale, place: Path) -> float:
    times: list[float] = []

    def timed(status: Status) -> None:
        if status.stage.startswith("training at"):
            times.append(time.monotonic())

    _run(scale, place / "timed", "full", lambda: TIMED, progress=timed)
    return times[-1] - times[-2]


def _after(
    scale: Scale, place: Path, layout: Arrangement, steps: Callable[[], int]
) -> dict[str, Any]:
    _run(scale, place, layout, steps)  # at once, unless another machine trained it
    model = str(place / layout / "model")
    return _rates(_retrieved(scale, place, f"retrieved-{layout}", model), "task")


def _difference(first: Path, second: Path) -> list[str]:
    return [str(each.comparison) for each in rw.compare_runs(first, second).comparisons]


def gemma(scale: Scale, place: Path, found: Mapping[str, Any]) -> Iterator[Item]:
    def asked() -> dict[str, Any]:
        how = {"methods": ("yarn",), "to": 65536}
        own = _asked(scale, str(GEMMA), place / "gemma", FACTS[:1], 65536, 24, **how)
        return _rates(own, "method")

    yield "64k", asked


def searched(scale: Scale, place: Path, found: Mapping[str, Any]) -> Iterator[Item]:
    def search() -> str:
        return rw.search(
            scale.model(), scale.target, corpus=scale.text("reporting"), run=place / "search",
            dtype=scale.dtype, device=scale.device, progress=None, **scale.searched,
        ).summary()  # fmt: skip

    yield format_length(scale.target), search


def formats(scale: Scale, found: Mapping[str, Any]) -> Iterator[Item]:
    yield (
        "bundled",
        lambda: rw.precision(
            "bundled", quick=True, arms=scale.arms, device=scale.device, **scale.measured
        ).summary(),
    )


# --- the run -----------------------------------------------------------------------------------


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
    run(SCALES[asked.device], asked.out.resolve())


def _where(scale: Scale) -> dict[str, Any]:
    packages = {name: version(name) for name in ("torch", "transformers")}
    where = {**machine(), **packages, "ropewalk": rw.__version__}
    if scale.device == "cuda":
        where["gpu"] = torch.cuda.get_device_name()
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            said = f"unknown: {error}"
        where["driver"] = said.strip()
    return where


class Late(BaseException):
    """The end of a part's time: no failure, so nothing that takes failures may take it."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `Late` after so many seconds, or when the kernel that runs then has ended."""

    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(scale: Scale, out: Path) -> None:
    began, where = time.monotonic(), _where(scale)
    kept = _kept(out)
    card = str(where.get("gpu", scale.device))
    place = (TEXT if scale.device == "cuda" else out.with_suffix("")) / card.replace(" ", "-")
    for part in parts(scale, place):
        entry = kept.get(part.name)
        if entry is None or entry["machine"] != where:
            entry = {"machine": where, "took": 0.0, "ended": "", "found": {}}
        if entry["ended"] == "done" or (part.needs is not None and not part.needs.exists()):
            continue
        left = LIMIT - (time.monotonic() - began)
        if left < LEAST:
            print(f"{part.name}: {LIMIT // 60} minutes are over; run this again", flush=True)
            return
        kept[part.name] = entry
        keep = partial(_keep, kept, out, entry, time.monotonic() - entry["took"])
        try:
            with at_most(min(part.seconds * scale.patience, left)):
                for name, find in part.items(entry["found"]):
                    if name not in entry["found"]:
                        gc.collect()  # a model that was trained is part of a cycle
                        if scale.device == "cuda":
                            torch.cuda.empty_cache()
                        entry["found"][name] = find()
                        keep("begun")
            keep("done")
        except Late:
            keep("late")
        except Exception as error:  # one part's failure is a result too
            keep(f"failed: {type(error).__name__}: {error}"[:2000])
        print(f"{part.name}: {entry['ended']}, {entry['took']} s", flush=True)
    if failed := [name for name, found in kept.items() if found["ended"].startswith("failed")]:
        raise SystemExit(f"failed: {', '.join(failed)}; the reasons are in {out}")


def _keep(
    kept: Mapping[str, Any], out: Path, entry: dict[str, Any], start: float, ended: str
) -> None:
    entry |= {"took": round(time.monotonic() - start, 1), "ended": ended}
    write_atomically(out, json.dumps({"parts": kept}, indent=1) + "\n")


def _kept(out: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(out.read_text("utf-8"))["parts"] if out.exists() else {}
    except (KeyError, TypeError, ValueError) as error:
        raise SystemExit(f"{out} is damaged ({error}); move it away first") from None
    return kept


def blocks() -> dict[str, str]:
    kept = _kept(RESULTS)
    lines = ["| part | at most | question | rule | answered on | |", "|---" * 6 + "|"]
    for part in parts(SCALES["cuda"], TEXT):
        ended = kept[part.name]["ended"] if part.name in kept else "not run on a GPU"
        ended = ended.partition(":")[0]
        told = (part.name, f"{part.seconds} s", part.question, part.rule, part.page, ended)
        lines.append(f"| {' | '.join(told)} |")
    return {PAGE: "\n".join([*lines, "", *_answers(kept), "", *_steps(kept)])}


def _answers(kept: Mapping[str, Any]) -> Iterator[str]:
    """What the parts of the list have found, each on its card."""
    yield "| part | found | card |"
    yield "|---" * 3 + "|"
    for name, words in _WORDS.items():
        if name in kept:
            entry = kept[name]
            yield f"| {name} | {words(entry['found'])} | {entry['machine']['gpu']} |"


def _of_chunks(found: Mapping[str, Any]) -> str:
    read = {name: each for name, each in found.items() if "seconds" in _dict(each)}
    over = [(each["bytes"] / each["calculated"] - 1) * 100 for each in read.values()]
    errors = [each["times_dense"] for each in found.values() if "times_dense" in _dict(each)]
    times = [
        f"{value:.2f} times at {name.rpartition(' ')[2]}"
        for name, value in found.items()
        if name.startswith("over")
    ]
    return (
        f"errors at most {max(errors):.3f} times those of a dense mask; seconds in chunks "
        f"{' and '.join(times)}; peaks {min(over):.1f} to {max(over):.1f}% above `cost`"
    )


def _of_engines(found: Mapping[str, Any]) -> str:
    compared = [own for each in found.values() for own in _dict(each).values()]
    errors = [own["times_dense"] for own in map(_dict, compared) if "times_dense" in own]
    return f"errors at most {max(errors):.2f} times those of a dense mask in four layouts"


def _of_rates(found: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{name} {each['rate']:.0%} ({each['low']:.0%} to {each['high']:.0%})"
        for part in found.values()
        for name, each in _dict(_dict(part).get("rates", part)).items()
        if "rate" in _dict(each)
    )


def _of_methods(found: Mapping[str, Any]) -> str:
    primary = "linear minus yarn"
    return f"{_of_rates(found)}; {primary} {found['extended, 16k']['differences'][primary]}"


def _of_layouts(found: Mapping[str, Any]) -> str:
    shares = [
        f"{name.partition(', ')[2]} {_of_rates({name: each})}"
        for name, each in found.items()
        if name.startswith("retrieved")
    ]
    changes = [f"{name} {said}" for name, said in found.items() if "minus" in name]
    return f"{found['steps']} steps; " + "; ".join([*shares, *changes])


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "chunks without a mask": _of_chunks,
    "engines": _of_engines,
    "methods": _of_methods,
    "layouts": _of_layouts,
}


def _steps(kept: Mapping[str, Any]) -> Iterator[str]:
    """Steps of the 8B shape with few layers, from the first list."""
    old = {name: entry["found"] for name, entry in kept.items() if name.startswith("step, ")}
    yield "| step | seconds | GiB | calculated |"
    yield "|---" * 4 + "|"
    cards = set()
    for name, found in old.items():
        if "bytes" in found:
            peak, calculated = found["bytes"] / GIB, found["calculated"] / GIB
            told = name.removeprefix("step, ")
            yield f"| {told} | {found['seconds']:.2f} | {peak:.1f} | {calculated:.1f} |"
            cards.add(kept[name]["machine"]["gpu"])
    yield ""
    yield f"Steps ran on one {', '.join(cards)}."


if __name__ == "__main__":
    main()
