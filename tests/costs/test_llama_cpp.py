"""What llama.cpp takes for a GGUF file: as it reserves it, and what fits a machine."""

from __future__ import annotations

import math
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.api.cost import Cost
from ropewalk.costs.llama_cpp import LlamaCppCost
from ropewalk.costs.machines import machine
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.header import read_header
from tests.gguf.gguf_files import raw_file, text, uint32
from tests.gguf.test_cache import RESERVING

GIB = 2**30
HIDDEN, INNER, HEADS, KEY_HEADS, HEAD = 4096, 12288, 32, 8, 128
Q4_K = (12, 256, 144)
"""GGML's number of the type, the values of a block, and its bytes."""


def qwen3(path: Path, layers: int = 36, vocabulary: int = 151936) -> Path:
    """A file of the shape of Qwen3-8B, with holes for weights."""
    kind, block, size = Q4_K
    keys = {
        "block_count": layers,
        "context_length": 32768,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KEY_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "vocab_size": vocabulary,
    }
    stated = {f"qwen3.{key}": uint32(value) for key, value in keys.items()}
    for key, value in (("attention.layer_norm_rms_epsilon", 1e-6), ("rope.freq_base", 1e6)):
        stated[f"qwen3.{key}"] = struct.pack("<If", 6, value)
    named = {"general.architecture": text("qwen3"), "tokenizer.ggml.model": text("no_vocab")}
    matrices = {
        "attn_q": (HIDDEN, HEADS * HEAD),
        "attn_k": (HIDDEN, KEY_HEADS * HEAD),
        "attn_v": (HIDDEN, KEY_HEADS * HEAD),
        "attn_output": (HEADS * HEAD, HIDDEN),
        "ffn_gate": (HIDDEN, INNER),
        "ffn_up": (HIDDEN, INNER),
        "ffn_down": (INNER, HIDDEN),
    }
    norms = {"attn_norm": HIDDEN, "ffn_norm": HIDDEN, "attn_q_norm": HEAD, "attn_k_norm": HEAD}
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (HIDDEN, vocabulary),
        "output.weight": (HIDDEN, vocabulary),
        "output_norm.weight": (HIDDEN,),
    }
    for i in range(layers):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in matrices.items()}
        shapes |= {f"blk.{i}.{name}.weight": (width,) for name, width in norms.items()}
    return raw_file(
        path,
        named | stated,
        [
            (name, shape, kind, math.prod(shape) // block * size)
            if len(shape) > 1
            else (name, shape, 0, 4 * shape[0])
            for name, shape in shapes.items()
        ],
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qwen3(tmp_path_factory.mktemp("large") / "qwen3-8b.gguf")


def on(path: Path, name: str) -> LlamaCppCost:
    found = LlamaCppCost.of(read_header(path), machine(name))
    assert found is not None
    return found


def test_the_type_of_cache_that_fits_is_proposed(large: Path) -> None:
    found = rw.cost(large, "128k", on="24GiB")
    f16, q8, *_ = found.rows
    assert f16.parts["cache"] == 18 * GIB
    assert f16.breaks == "cache"
    assert q8.fits
    assert "128k on 24GiB (24 GiB) a cache in F16 does not fit, and one in Q8_0" in found.summary()
    assert "(--cache-type-k q8_0 --cache-type-v q8_0)" in found.summary()


def test_the_length_that_fits_is_proposed(large: Path) -> None:
    small = on(large, "8GiB")
    assert "no type of cache fits; the longest texts that fit: " in small.proposal(131072)
    longest = small.longest("q4_0")
    assert longest % 1024 == 0
    assert small.fits(longest, "q4_0")
    assert not small.fits(longest + 1024, "q4_0")
    assert "no room for the weights" in on(large, "4GiB").proposal(4096)


def test_without_need_llama_cpp_keeps_its_default(large: Path) -> None:
    found = on(large, "2x24GiB").proposal(131072)
    assert "llama.cpp's default, fits" in found
    assert "--cache-type" not in found


def test_a_text_takes_as_long_as_by_the_config_of_the_model(large: Path) -> None:
    ours, [serve, *_] = on(large, "h100").seconds(65536), rw.cost("qwen3-8b", "64k", on="h100").rows
    assert ours == pytest.approx(serve.seconds, rel=1e-3)


def test_extend_is_counted_in_texts(large: Path) -> None:
    """A text is read once for all of its questions."""
    first, whole = rw.cost(large, "64k", on="rtx-4090").rows[-2:]
    reads = on(large, "rtx-4090")
    short, long = reads.seconds(32768) or 0, reads.seconds(65536) or 0
    assert "extend, first verdict, at most 167 texts" in first.what
    assert first.seconds == pytest.approx(96 * short + 71 * long)
    assert (first.seconds or 0) < 2 * 3600 < (whole.seconds or 0)
    assert not any("extend" in row.what for row in rw.cost(large, "32k", on="rtx-4090").rows)


@pytest.mark.parametrize("where", ["rtx-4090", None])
def test_the_preview_of_extend_is_that_of_cost(large: Path, where: str | None) -> None:
    told = rw.extend.preview(large, "64k", on=where, progress=None)
    assert isinstance(told, Cost)
    assert told.to_json() == rw.cost(large, "64k", on=where or "here").to_json()


def test_plan_says_what_fits_here(large: Path) -> None:
    told = rw.plan(large, "128k", "yarn", progress=None).memory
    assert told == on(large, "here").proposal(131072)
    assert "on this machine (" in told


@pytest.mark.skipif(not llama_cpp_run.available(), reason="llama.cpp is not here")
def test_it_is_what_llama_cpp_reserves(tmp_path: Path) -> None:
    path = qwen3(tmp_path / "a.gguf", layers=2, vocabulary=512)
    run = [sys.executable, "-c", RESERVING, str(path), "8192", "q8_0"]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stderr
    parts = on(path, "here").way(8192, "q8_0").parts
    for ours, theirs in (("cache", "KV"), ("compute buffer", "compute")):
        [size] = re.findall(rf"{theirs} buffer size = +([0-9.]+) MiB", told)
        assert parts[ours] / 2**20 == pytest.approx(float(size), abs=0.1)
