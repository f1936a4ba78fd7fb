"""The memory of llama.cpp's cache of keys and values at a length."""

from __future__ import annotations

from pathlib import Path

from ropewalk.gguf.header import GGUFHeader

BYTES = 2
"""The bytes of a value: by default, llama.cpp keeps them in F16."""
_OTHER = (
    *("attention.sliding_window", "attention.kv_lora_rank", "ssm.state_size", "wkv.head_size"),
    *("full_attention_interval", "shortconv.l_cache"),
)
"""Keys of models whose layers do not all keep all keys and values."""
_MEMORY, _LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


def cache_bytes(header: GGUFHeader, length: int) -> int | None:
    """The bytes of the cache; None for a model whose layers do not all keep the same."""
    layers, width = header.count("block_count"), header.count("embedding_length")
    heads = header.count("attention.head_count")
    key_heads = header.count("attention.head_count_kv")
    if f"{header.architecture}.attention.head_count_kv" not in header.spans:
        key_heads = heads
    if not (layers and heads and key_heads and width):
        return None
    if any(f"{header.architecture}.{key}" in header.spans for key in _OTHER):
        return None
    key = header.count("attention.key_length") or width // heads
    value = header.count("attention.value_length") or width // heads
    return layers * key_heads * (key + value) * BYTES * length


def free_memory() -> int | None:
    """The bytes that a new process can have; None if the system does not say."""
    try:
        told = dict(line.split(":", 1) for line in _MEMORY.read_text().splitlines() if ":" in line)
        free = sum(1024 * int(told[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, KeyError, IndexError):
        return None
    try:
        return min(free, int(_LIMIT.read_text()))
    except (OSError, ValueError):  # no limit, or none that is known
        return free
