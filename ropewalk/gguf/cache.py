"""The memory of llama.cpp's cache of keys and values at a length."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ropewalk.gguf.header import MOST_LAYERS, GGUFHeader
from ropewalk.gguf.rotation import window_of

TYPES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""The bytes of a value in the types that --cache-type-k and --cache-type-v name; the first is
llama.cpp's default."""
_OTHER = (
    *("attention.kv_lora_rank", "ssm.state_size", "wkv.head_size", "full_attention_interval"),
    *("shortconv.l_cache", "attention.key_length_swa", "attention.shared_kv_layers"),
)
"""Keys of models whose layers keep something else."""
_EVERY = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "cohere2": 4, "olmo2": 4}
"""The architectures of which llama.cpp leaves every n-th layer without a window."""
_CELLS, AT_ONCE = 256, 512
"""The cells of a cache come in so many at once; one of a window has room for what is read at once.
"""
_MEMORY, _LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


def windowed(header: GGUFHeader) -> tuple[bool, ...] | None:
    """By layer, whether it attends to a window only; None if that is not known."""
    layers, key = header.count("block_count"), "attention.sliding_window_pattern"
    if layers is None or layers > MOST_LAYERS:
        return None
    if window_of(header) is None:
        return (False,) * layers
    listed = header.counts(key)
    if len(listed) == layers:
        return tuple(map(bool, listed))
    every = header.count(key) or _EVERY.get(header.architecture)
    return (every and tuple((i + 1) % every != 0 for i in range(layers))) or None


class LayerCache(NamedTuple):
    """The keys and values that a layer keeps of a text."""

    numbers: int
    """For each token."""
    window: int | None

    def cells(self, length: int) -> int:
        """The tokens that llama.cpp reserves room for."""
        kept = length if self.window is None else min(length, self.window + AT_ONCE)
        return -(-kept // _CELLS) * _CELLS


def layer_caches(header: GGUFHeader) -> tuple[LayerCache, ...] | None:
    """By layer, what it keeps; None for a model that keeps something else."""
    layers, width = windowed(header), header.count("embedding_length")
    heads = header.count("attention.head_count")
    listed = header.counts("attention.head_count_kv")
    key_heads = header.count("attention.head_count_kv")
    if f"{header.architecture}.attention.head_count_kv" not in header.spans:
        key_heads = heads
    if not (layers and heads and width and (key_heads or len(listed) == len(layers))):
        return None
    if any(f"{header.architecture}.{key}" in header.spans for key in _OTHER):
        return None
    key = header.count("attention.key_length") or width // heads
    value = header.count("attention.value_length") or width // heads
    each = listed or [key_heads or 0] * len(layers)
    window = window_of(header)
    return tuple(
        LayerCache(count * (key + value), window if small else None)
        for count, small in zip(each, layers, strict=True)
    )


def cache_bytes(
    header: GGUFHeader, length: int, kind: str = "f16", *, keeps_prompts: bool = False
) -> int | None:
    """The bytes of the cache of one sequence; None for a model that keeps something else.

    A server that keeps prompts (--swa-full) keeps all of them in layers with a window, too.
    """
    layers = layer_caches(header)
    if layers is None:
        return None
    if keeps_prompts:
        layers = tuple(layer._replace(window=None) for layer in layers)
    return int(sum(layer.numbers * layer.cells(length) for layer in layers) * TYPES[kind])


def free_memory() -> int | None:
    """The bytes that a new process can have; None if the system does not say."""
    try:
        sizes = dict(line.split(":", 1) for line in _MEMORY.read_text().splitlines() if ":" in line)
        free = sum(1024 * int(sizes[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, KeyError, IndexError):
        return None
    try:
        return min(free, int(_LIMIT.read_text()))
    except (OSError, ValueError):  # no limit, or none that is known
        return free
