"""The memory of llama.cpp's cache, by the header."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.cache import _EVERY, cache_bytes, free_memory
from ropewalk.gguf.header import read_header
from tests.gguf.gguf_files import header_only
from tests.gguf.tiny_architectures import deep

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


RESERVING = """
import os, sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.n_gpu_layers = sys.argv[1], int(sys.argv[2]), 1, 0
p.warmup, p.fit_params, p.verbosity, p.swa_full = False, False, 4, "whole" in sys.argv
p.cache_type_k = p.cache_type_v = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + sys.argv[3].upper())
server = xllamacpp.Server(p)
time.sleep(0.2)
os._exit(0)
"""
slow = pytest.mark.slow


@pytest.mark.skipif(not llama_cpp_run.available(), reason="llama.cpp is not here")
@pytest.mark.parametrize(
    "name", ["gemma3", *(pytest.param(n, marks=slow) for n in ("llama", *_EVERY) if n != "gemma3")]
)
def test_it_is_what_llama_cpp_reserves(name: str, tmp_path: Path) -> None:
    """Layers with a window keep little more than that, by each architecture's own pattern."""
    path = deep(tmp_path / "a.gguf", name, 8, context_length=8192)
    for kept in ("windows", "whole"):
        run = [sys.executable, "-c", RESERVING, str(path), "5000", "f16", kept]
        told = subprocess.run(run, capture_output=True, text=True, check=True).stderr
        reserved = re.findall(r"KV buffer size = +([0-9.]+) MiB", told)
        ours = cache_bytes(read_header(path), 5000, keeps_prompts=kept == "whole")
        assert ours is not None
        assert ours / 2**20 == pytest.approx(sum(map(float, reserved)), abs=0.01)
        assert len(reserved) == (1 if name == "llama" else 2)


def test_types_of_the_cache_take_their_blocks(tmp_path: Path) -> None:
    header = read_header(header_only(tmp_path / "a.gguf", keys=LLAMA_3_1_8B))
    assert cache_bytes(header, 131072, "q8_0") == 16 * GIB * 17 / 32
    assert cache_bytes(header, 131072, "q4_0") == 16 * GIB * 9 / 32


def test_some_memory_is_free() -> None:
    free = free_memory()
    assert free is None or free > 2**20
