"""The cost of each use of a model: peak memory of a device by part, and time.

The formulas count what is allocated by the parts that are large. What they do not see (workspaces,
fragments, the driver's own) is an allowance, which was written down before it was compared with any
published figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ropewalk.costs.forwards import Forwards
from ropewalk.costs.machines import GIB as GIB
from ropewalk.costs.machines import Machine
from ropewalk.costs.sizes import Norms, Sizes
from ropewalk.lengths import format_length

ALLOWED_BYTES, ALLOWED_TOGETHER, ALLOWED_SHARE = 2**30, 2**30, 0.08
"""The allowance for memory that neither formulas nor fake tensors see: the driver's context and the
workspaces of its libraries; NCCL's buffers, if there is more than one device; and a share of all
the rest, for fragments."""
COMPUTING = 0.4
"""The assumed share of a data sheet's operations."""
CHUNK = 8192
"""Tokens that a server reads at once of a long prompt."""
AT_ONCE = 4096
"""Texts up to this are read at once by an evaluation; longer ones through a cache, in chunks: of so
many tokens too where a kernel needs no mask, on a GPU in half precision."""
LARGEST, SMALLEST = 2048, 16
"""Tokens of a chunk under a mask."""
MASKED = 64 * 2**20
"""Entries of the mask of a chunk: 64 MiB of truth values, which attention turns into numbers."""
LOGITS = 32 * 2**20
"""Logits that a loss makes at once."""
MOST_DEVICES = 1024
HALF, SINGLE = 2, 4
"""Bytes of a number in bfloat16, and in float32."""
BYTES = {"float16": HALF, "bfloat16": HALF, "float32": SINGLE}
SHORTEST = 1024
TRAINING, RECOMPUTING = 3, 4
"""Forwards that a step costs: a backward takes two, and recomputing one more."""


@dataclass(frozen=True)
class Workload:
    """A model at a length on a machine."""

    sizes: Sizes
    length: int
    machine: Machine
    original: int
    """The length that the model serves now."""
    number: int = HALF
    """Bytes of a number that is computed with."""


class Way(NamedTuple):
    """One way of doing something."""

    option: str
    """The way to ask for it; empty if nothing needs to be asked."""
    parts: Mapping[str, float]
    """Bytes on one device."""
    seconds: float | None
    devices: int

    @property
    def bytes(self) -> float:
        return with_allowance(self.parts, self.devices)

    def breaks(self, memory: float) -> str | None:
        """The part that a device of this memory has no room for, once it holds those before."""
        held: dict[str, float] = {}
        for name, size in self.parts.items():
            held[name] = size
            if with_allowance(held, self.devices) > memory:
                return name
        return None


def with_allowance(parts: Mapping[str, float], devices: int) -> float:
    """The bytes of all parts on one of so many devices, and those that no formula sees."""
    whole = sum(parts.values())
    together = ALLOWED_TOGETHER if devices > 1 else 0
    return whole + ALLOWED_BYTES + together + ALLOWED_SHARE * whole


class UseCost(NamedTuple):
    """The default cost of one use of a model, and what to change if that is too much."""

    what: str
    way: Way
    breaks: str | None
    """The part that there is no room for; None if it fits."""
    change: Way | None
    """The cheapest that fits; None if the default does, or if none of ours does."""


def rows(
    work: Workload, ways: Mapping[str, Callable[[Workload], Iterator[Way]]]
) -> Iterator[UseCost]:
    """Each use by default, and the cheapest way that fits; ways come cheapest first."""
    for what, every in ways.items():
        first = next(every(work))
        breaks = first.breaks(work.machine.memory)
        yield UseCost(what, first, breaks, None if breaks is None else cheapest(work, every))


def cheapest(work: Workload, ways: Callable[[Workload], Iterator[Way]]) -> Way | None:
    """The first way that fits, on as many devices, or on twice, four times… as many."""
    count = work.machine.devices
    while True:
        larger = replace(work, machine=replace(work.machine, devices=count))
        for way in ways(larger):
            if way.bytes <= work.machine.memory:
                return way
        count *= 2
        if count > min(MOST_DEVICES, work.machine.at_most):
            return None


# --- serving ---------------------------------------------------------------------------------


def serving(work: Workload) -> Iterator[Way]:
    """One text of the whole length, by a server that divides heads over as many of the devices as
    it can."""
    sizes = work.sizes
    n = max(n for n in range(1, work.machine.devices + 1) if _serves(sizes, n))
    yield _served(work, n, HALF, HALF, "")
    for weights, cache, option in (
        (HALF, 1.0, "a cache of 8 bits"),
        (HALF, 0.5, "a cache of 4 bits"),
        (1.0, 1.0, "weights and a cache of 8 bits"),
        (0.5, 1.0, "weights of 4 bits and a cache of 8"),
        (0.5, 0.5, "weights and a cache of 4 bits"),
    ):
        yield _served(work, n, weights, cache, option)


def _serves(sizes: Sizes, ranks: int) -> bool:
    """True if heads can be divided so; fewer key heads than ranks are copied."""
    keys = sizes.key_heads
    return sizes.heads % ranks == 0 and (keys % ranks == 0 or ranks % keys == 0)


def _served(work: Workload, devices: int, weights: float, cache: float, option: str) -> Way:
    sizes, length = work.sizes, work.length
    whole = any(layer.kind == "latent" for layer in sizes.layers)  # on each device
    heads = 1 if whole else sizes.key_heads
    at_once = min(length, CHUNK)
    parts = {
        "weights": sizes.weights * weights / devices,
        "cache": sizes.cache(length) * cache / min(devices, max(1, heads)),
        "activations": at_once * HALF * (4 * sizes.hidden + 3 * sizes.inner / devices),
    }
    return Way(option, parts, _computed(work, sizes.operations(length), devices), devices)


# --- evaluating and searching ----------------------------------------------------------------


def _forward(work: Workload, length: int, ranks: int = 1) -> dict[str, float]:
    """One forward of ours: the whole text at once, layer by layer."""
    sizes, number = work.sizes, work.number
    gathered = 2 * sizes.layer_weights * number if ranks > 1 else 0
    return {
        "weights": sizes.weights * number / ranks + gathered,
        "one layer at work": length * number * (4 * sizes.hidden + 3 * sizes.inner),
    }


def reading(
    work: Workload, *, in_chunks: bool, ranks: int = 1, cache_whole: bool = False
) -> dict[str, float]:
    """One text, as an evaluation reads it: in chunks, if the model can go on from a cache.

    `ranks` hold one copy together, each with its heads and their part of the cache, or with all of
    the cache (`cache_whole`).
    """
    sizes, length, number = work.sizes, work.length, work.number
    weights = {"weights": float(sizes.weights * number / ranks)}
    if length <= AT_ONCE or not in_chunks or any(layer.state for layer in sizes.layers):
        return {**_forward(work, length), **weights}
    masked = not (work.machine.is_gpu and number == HALF)  # by what most models' attention allows
    size = max(SMALLEST, min(LARGEST, MASKED // length)) if masked else AT_ONCE
    whole = cache_whole or not _divides(sizes, ranks)
    return {
        **weights,
        "cache": float(sizes.cache(length) * number / (1 if whole else ranks)),
        "a chunk at work": size * number * (4 * sizes.hidden + 3 * sizes.inner)
        + masked * size * length * (1 + number),
    }


def evaluating(work: Workload, first: int = 1) -> Iterator[Way]:
    """One forward, on so many devices or on more that the key heads can be divided over."""
    yield _read(work, work.length, first, "")
    for ranks in _divisors(work.machine.devices):
        if ranks > first and _divides(work.sizes, ranks):
            yield _read(work, work.length, ranks, f"--ranks-per-copy {ranks}")
    length = work.length // 2
    while length >= SHORTEST:
        yield _read(work, length, 1, f"lengths of at most {format_length(length)}")
        length //= 2


def answering(forwards: Sequence[Forwards], ranks: int) -> Callable[[Workload], Iterator[Way]]:
    """So many forwards at each length, shared by copies that so many ranks hold each."""

    def ways(work: Workload) -> Iterator[Way]:
        for way in evaluating(replace(work, length=_longest(forwards)), ranks):
            copies = max(1, work.machine.devices // way.devices)
            yield way._replace(seconds=_shared(work, forwards, copies, way.devices))

    return ways


def _longest(forwards: Sequence[Forwards]) -> int:
    return max(length for length, _ in forwards)


def _shared(work: Workload, forwards: Sequence[Forwards], copies: int, ranks: int) -> float | None:
    """Seconds of forwards that copies of so many ranks each share: none is shorter than one."""
    operations = sum(
        math.ceil(times / copies) * work.sizes.operations(length) for length, times in forwards
    )
    return _computed(work, operations, ranks)


def _divides(sizes: Sizes, ranks: int) -> bool:
    """True if keys and values can be divided so; latents stay whole on each rank."""
    return sizes.key_heads % ranks == 0 and all(layer.kind != "latent" for layer in sizes.layers)


def _read(work: Workload, length: int, ranks: int, option: str) -> Way:
    parts = reading(replace(work, length=length), in_chunks=True, ranks=ranks)
    return Way(option, parts, _computed(work, work.sizes.operations(length), ranks), ranks)


def extending(
    stages: Callable[[int], Iterable[Callable[[Workload], Iterator[Way]]]],
) -> Callable[[Workload], Iterator[Way]]:
    """All stages in turn, by so many ranks to a copy: the largest peak, and the sum of times."""

    def ways(work: Workload) -> Iterator[Way]:
        for ranks in _divisors(work.machine.devices):
            if ranks > 1 and not _divides(work.sizes, ranks):
                continue
            each = [next(ways(work)) for ways in stages(ranks)]
            largest = max(each, key=lambda way: way.bytes)
            times = [way.seconds for way in each if way.seconds is not None]
            option = f"--ranks-per-copy {ranks}" if ranks > 1 else ""
            yield largest._replace(option=option, seconds=sum(times) if times else None)

    return ways


def searching(forwards: Sequence[Forwards], first: int = 1) -> Callable[[Workload], Iterator[Way]]:
    """So many forwards at each length, shared by all devices; each copy over some of them, by its
    heads if these can be divided, else by its layers."""

    def ways(work: Workload) -> Iterator[Way]:
        work, devices = replace(work, length=_longest(forwards)), work.machine.devices
        for ranks in (n for n in _divisors(devices) if n >= first):
            option = "" if ranks == first else f"--ranks-per-copy {ranks}"
            if ranks > 1 and _divides(work.sizes, ranks):
                parts = reading(work, in_chunks=True, ranks=ranks)
                seconds = _shared(work, forwards, devices // ranks, ranks)
            else:  # each rank has a document of its own
                parts = _forward(work, work.length, ranks)
                seconds = _shared(work, forwards, devices, 1)
            yield Way(option, parts, seconds, devices)

    return ways


def training_alone(windows: int, window: int) -> Callable[[Workload], Iterator[Way]]:
    """Steps that read so many windows together, on one device, as `extend` trains."""

    def ways(work: Workload) -> Iterator[Way]:
        one = step(work, 1, 1, recompute=False, lora=False, window=window)
        yield one._replace(seconds=None if one.seconds is None else one.seconds * windows)

    return ways


# --- training --------------------------------------------------------------------------------


def training(work: Workload) -> Iterator[Way]:
    """A step of one window for each group of ranks that shares one, AdamW on all weights."""
    n = work.machine.devices
    yield step(work, n, 1, recompute=False, lora=False, window=work.length)
    for lora in (False, True):
        groups = [g for g in _divisors(n) if work.sizes.heads % g == 0]
        for sequence in groups:
            yield step(work, n, sequence, recompute=True, lora=lora, window=work.length)
    window = min(work.length, 2 * work.original)
    if window < work.length:
        for lora in (False, True):
            yield step(work, n, 1, recompute=True, lora=lora, window=window)


def step(
    work: Workload,
    devices: int,
    sequence: int,
    *,
    recompute: bool,
    lora: bool,
    window: int,
    at_once: int = 1,
    trained: int = SINGLE,
) -> Way:
    """One step, of `at_once` windows for each group of `sequence` ranks; `trained` is the bytes of
    a weight while it is trained."""
    size = work.sizes
    tokens = window * at_once / sequence
    # Of each layer: what enters its products (the residual stream, normed, twice; the output of
    # attention; what is as wide as the feed-forward part, before and after the activation, its
    # gate, and their product), queries, keys and values, and what its norms keep.
    heads = max((layer.width for layer in size.layers), default=size.hidden)
    cached = max((layer.keeps for layer in size.layers), default=0)
    products = 2 * size.hidden + 2 * heads + cached + 4 * size.inner
    layer = tokens * (work.number * products + kept_by_norms(size.norms, work.number) * size.normed)
    if recompute:
        activations = len(size.layers) * tokens * work.number * size.hidden + layer
    else:
        activations = len(size.layers) * layer
    if lora:
        weights = {"weights": size.weights * work.number / devices}
        state = 0.01 * size.weights * 4 * SINGLE / devices
    else:
        weights = {"weights": size.weights * trained / devices}
        state = 3 * size.weights * trained / devices
    if devices > 1:
        gathered = (2 * size.layer_weights + size.table) * work.number
    else:  # a copy in bfloat16 of weights that are trained in float32
        gathered = 0 if lora or work.number == trained else size.weights * work.number
    parts = {
        **weights,
        "gradients and optimizer": state,
        "weights at work": float(gathered),
        "activations": activations,
        # Some logits at a time; the gradient of the head, once summed and once of these.
        "loss": 3 * min(LOGITS, tokens * size.vocabulary) * SINGLE
        + (0 if lora else 2 * size.vocabulary * size.hidden * work.number),
    }
    times = RECOMPUTING if recompute else TRAINING
    groups = max(1, devices // sequence)
    operations = times * size.operations(window) * groups
    option = " ".join(
        [
            *(["--recompute"] if recompute else []),
            *([f"--sequence-parallel {sequence}"] if sequence > 1 else []),
            *(["--lora 16"] if lora else []),
            *([f"--layout skip --window {format_length(window)}"] if window < work.length else []),
        ]
    )
    return Way(option, parts, _computed(work, operations, devices), devices)


def kept_by_norms(norms: Norms, number: int) -> int:
    """Bytes that the backward pass of a norm needs of each number: the number in float32, and what
    is multiplied by the weights, in float32 too if that product is."""
    return {"half": SINGLE + number, "single": 2 * SINGLE, "torch": number}[norms]


def _divisors(count: int) -> list[int]:
    return [i for i in range(1, count + 1) if count % i == 0]


def _computed(work: Workload, operations: float, devices: int) -> float | None:
    """Seconds, if the speed of the machine is known."""
    if work.machine.operations is None:
        return None
    return operations / (COMPUTING * work.machine.operations * devices)


def duration(seconds: float | None) -> str:
    """A time in words, if it is known."""
    if seconds is None:
        return "–"
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.2g} s"
