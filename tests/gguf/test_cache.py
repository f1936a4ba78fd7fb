"""The memory of llama.cpp's cache, by the header."""

from __future__ import annotations

from pathlib import Path

from ropewalk.gguf.cache import cache_bytes, free_memory
from ropewalk.gguf.header import read_header
from tests.gguf.gguf_files import header_only

GIB = 2**30
LLAMA_3_1_8B = {
    "block_count": 32,
    "embedding_length": 4096,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
}


def of(folder: Path, **keys: object) -> int | None:
    stated = {**LLAMA_3_1_8B, **{name.replace("__", "."): value for name, value in keys.items()}}
    return cache_bytes(read_header(header_only(folder / "a.gguf", keys=stated)), 131072)


def test_it_is_that_of_the_model(tmp_path: Path) -> None:
    assert of(tmp_path) == 16 * GIB
    assert of(tmp_path, attention__key_length=64, attention__value_length=64) == 8 * GIB


def test_without_a_count_of_key_heads_each_head_has_its_own(tmp_path: Path) -> None:
    stated = {k: v for k, v in LLAMA_3_1_8B.items() if k != "attention.head_count_kv"}
    path = header_only(tmp_path / "a.gguf", keys=stated)
    assert cache_bytes(read_header(path), 131072) == 64 * GIB


def test_it_is_not_known_where_layers_differ(tmp_path: Path) -> None:
    assert of(tmp_path, attention__sliding_window=1024) is None
    assert of(tmp_path, attention__kv_lora_rank=512) is None


def test_some_memory_is_free() -> None:
    free = free_memory()
    assert free is None or free > 2**20
