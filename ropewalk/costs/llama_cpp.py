"""The memory by type of cache, and the time of a text, of a GGUF file served by llama.cpp.

Weights and cache are what llama.cpp reserves. The compute buffer is an estimate: on a CPU, with
flash attention, llama.cpp reserves so much for Gemma 3 270M and for the shapes of Qwen3-8B and of
Llama 3.2 1B; a GPU's backend may differ.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from ropewalk.costs.machines import HERE, Machine, machine, main_memory
from ropewalk.costs.memory_and_time import COMPUTING, GIB, HALF, SINGLE, Way
from ropewalk.costs.sizes import Layer
from ropewalk.gguf.cache import AT_ONCE, TYPES, LayerCache, cache_bytes, layer_caches
from ropewalk.gguf.facts import tensor_bytes
from ropewalk.gguf.header import GGUFHeader
from ropewalk.lengths import MAX_MEASURED_LENGTH, format_length

TABLE, HEAD = "token_embd.weight", "output.weight"
STEP = 1024
"""Proposed lengths are multiples of this."""


def flags(kind: str) -> str:
    """The flags of llama.cpp for a type of cache; empty for its default."""
    return "" if kind == next(iter(TYPES)) else f"--cache-type-k {kind} --cache-type-v {kind}"


@dataclass(frozen=True)
class LlamaCppCost:
    """A GGUF file in llama.cpp on a machine, one text at a time; its layers, and so their cache,
    are shared out evenly between devices."""

    header: GGUFHeader
    machine: Machine
    layers: tuple[LayerCache, ...]

    @classmethod
    def of(cls, header: GGUFHeader, machine: Machine) -> LlamaCppCost | None:
        """None for a model whose layers keep something other than keys and values."""
        layers = layer_caches(header)
        return None if layers is None else cls(header, machine, layers)

    @classmethod
    def here(cls, header: GGUFHeader) -> LlamaCppCost:
        """On this machine; layers that keep something else count as if they compared all."""
        every = (LayerCache(0, None),) * (header.count("block_count") or 1)
        return cls(header, machine(HERE), layer_caches(header) or every)

    @cached_property
    def _weights(self) -> int:
        return tensor_bytes(self.header)

    def way(self, length: int, kind: str) -> Way:
        """Serving a text of this length with a type of cache."""
        devices, cache = self.machine.devices, cache_bytes(self.header, length, kind)
        assert cache is not None, "its layers keep keys and values"
        parts = {
            "weights": self._weights / devices,
            "cache": cache / devices,
            "compute buffer": float(self._buffer(length)),
        }
        return Way(flags(kind), parts, self.seconds(length), devices)

    def _buffer(self, length: int) -> int:
        """Bytes of the computation of the tokens that are read at once, and of their masks."""
        header, used = self.header, self.header.count("expert_used_count") or 1
        inner = max([
            header.count("feed_forward_length") or 0, *header.counts("feed_forward_length"),
            used * (header.count("expert_feed_forward_length") or 0),
        ])  # fmt: skip
        widths = 5 * (header.count("embedding_length") or 0) + 3 * inner
        masks = {layer.window: layer.cells(length) for layer in self.layers}
        return AT_ONCE * (SINGLE * widths + HALF * sum(masks.values()))

    def fits(self, length: int, kind: str) -> bool:
        return self.way(length, kind).breaks(self.machine.memory) is None

    def longest(self, kind: str) -> int:
        """The longest text that fits with a type of cache, in whole steps."""
        most = range(STEP, MAX_MEASURED_LENGTH + 1, STEP)
        return STEP * bisect_left(most, True, key=lambda length: not self.fits(length, kind))

    def proposal(self, length: int) -> str:
        """The type of cache, or else the length, that this machine's memory has room for."""
        on = self.machine
        where = f"{on.name} ({on.memory / GIB:.3g} GiB)" if on.devices == 1 else f"{on}"
        where = where.replace(HERE, "this machine") if on.name == HERE else where
        room = ", ".join(
            f"{format_length(most)} in {kind.upper()}"
            for kind in TYPES
            if (most := self.longest(kind))
        )
        if not room:
            return f"{where} has no room for the weights, whatever the cache"
        cache = next((kind for kind in TYPES if self.fits(length, kind)), None)
        at = f"at {format_length(length)} on {where}"
        if cache is None:
            advice = "no type of cache fits"
        elif option := flags(cache):
            advice = f"a cache in F16 does not fit, and one in {cache.upper()} does ({option})"
        else:
            advice = "a cache in F16, llama.cpp's default, fits"
        return f"{at} {advice}; the longest texts that fit: {room}"

    def seconds(self, length: int) -> float | None:
        """The time in which a text is read once, if the speed of the machine is known."""
        if self.machine.operations is None:
            return None
        products = self.active * length + self.compared(length)
        return 2 * products / (COMPUTING * self.machine.operations)

    def compared(self, length: int) -> float:
        """Products of positions in one forward over a text, for scores and for values."""
        heads = self.header.count("attention.head_count") or max(
            self.header.counts("attention.head_count"), default=0
        )
        width = self.header.count("embedding_length") or 0
        across = heads * (self.header.count("attention.key_length") or width // max(1, heads))
        return sum(
            2 * across * Layer("full", 0, window=layer.window, width=across).pairs(length)
            for layer in self.layers
        )

    @cached_property
    def active(self) -> float:
        """Weights that a token is multiplied by: not a table that is only looked up, and of experts
        the share that is chosen."""
        tensors, count = self.header.tensors, self.header.count("expert_count") or 1
        chosen = (self.header.count("expert_used_count") or count) / count
        looked_up = TABLE if HEAD in tensors else ""
        return sum(
            math.prod(place.shape) * (chosen if "_exps." in name else 1)
            for name, place in tensors.items()
            if len(place.shape) > 1 and name != looked_up
        )


def room_here(header: GGUFHeader, length: int) -> str:
    """The type of cache that this machine has room for; empty where that is not known."""
    cost = None if main_memory() is None else LlamaCppCost.of(header, machine(HERE))
    return "" if cost is None else cost.proposal(length)
