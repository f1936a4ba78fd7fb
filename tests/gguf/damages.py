"""Files that llama.cpp cannot load, each with one thing wrong."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from ropewalk.gguf.header import F32, read_header
from tests.gguf.gguf_files import float32, raw_file, text, uint32

QUERIES = "blk.0.attn_q.weight"
Change = Callable[[dict[str, bytes], dict[str, NDArray[np.float32]]], object]


def _not_a_number(values: NDArray[np.float32], found: float) -> None:
    values.flat[3] = found


DAMAGES: dict[str, tuple[Change, str]] = {
    "a tensor renamed": (lambda k, t: t.update({"blk.0.attn_x.weight": t.pop(QUERIES)}), "attn_q"),
    "a tensor less": (lambda k, t: t.pop("output_norm.weight"), "output_norm"),
    "a tensor more": (lambda k, t: t.update(odd=np.ones(4, np.float32)), "number of tensors"),
    "no shape": (lambda k, t: t.update({"token_embd.weight": np.ones((), np.float32)}), "embd"),
    "no embedding": (lambda k, t: t.pop("token_embd.weight"), "token_embd"),
    "another shape": (lambda k, t: t.update({QUERIES: t[QUERIES][:-4]}), "attn_q.*shape"),
    "a matrix as a list": (lambda k, t: t.update({QUERIES: t[QUERIES].reshape(-1)}), "shape"),
    "a block less than stated": (lambda k, t: k.update(count(4)), "blk.3.attn_norm"),
    "a block more than stated": (lambda k, t: k.update(count(2)), "number of tensors"),
    "no count of blocks": (lambda k, t: k.pop("llama.block_count"), "block_count"),
    "a count that is text": (lambda k, t: k.update({"llama.block_count": text("3")}), "wrong type"),
    "a count of eight bytes": (
        lambda k, t: k.update({"llama.block_count": struct.pack("<IQ", 10, 3)}),
        "wrong type u64",
    ),
    "a count as a list": (lambda k, t: k.update(listed("expert_count", 0)), "wrong type arr"),
    "an epsilon as a list": (
        lambda k, t: k.update(listed("attention.layer_norm_rms_epsilon", 0)),
        "wrong type arr",
    ),
    "a switch that is a number": (
        lambda k, t: k.update({"llama.attention.causal": uint32(1)}),
        "wrong type u32",
    ),
    "groups of two bytes": (
        lambda k, t: k.update({"llama.expert_group_count": struct.pack("<IH", 2, 1)}),
        "wrong type u16",
    ),
    "values of no size": (
        lambda k, t: k.update({"llama.attention.value_length": uint32(0)}),
        "attn_v.*shape",
    ),
    "no heads": (lambda k, t: k.pop("llama.attention.head_count"), "shape|head_count"),
    "no epsilon": (lambda k, t: k.pop("llama.attention.layer_norm_rms_epsilon"), "rms_epsilon"),
    "an epsilon that is no number": (lambda k, t: k.update(epsilon(math.nan)), "eps"),
    "a negative epsilon": (lambda k, t: k.update(epsilon(-1.0)), "eps"),
    "no name in a block": (lambda k, t: t.update({"blk.0": np.ones(4, np.float32)}), "number of"),
    "no kind of tokenizer": (lambda k, t: k.pop("tokenizer.ggml.model"), "tokenizer.ggml.model"),
    "no vocabulary": (lambda k, t: k.pop("tokenizer.ggml.tokens"), "vocab"),
    "no merges": (lambda k, t: k.pop("tokenizer.ggml.merges"), "merges"),
    "NaN": (lambda k, t: _not_a_number(t[QUERIES], np.nan), "attn_q.*invalid data.*nan"),
    "infinite": (lambda k, t: _not_a_number(t["token_embd.weight"], np.inf), "invalid data.*inf"),
}


def listed(key: str, value: int) -> dict[str, bytes]:
    """A list of one whole number, where one number stands in other files."""
    return {f"llama.{key}": struct.pack("<IIQI", 9, 4, 1, value)}


def epsilon(value: float) -> dict[str, bytes]:
    return {"llama.attention.layer_norm_rms_epsilon": float32(value)}


def count(blocks: int) -> dict[str, bytes]:
    return {"llama.block_count": uint32(blocks)}


@cache
def _tensors(source: Path) -> dict[str, NDArray[np.float32]]:
    return {t.name: np.array(t.data) for t in gguf.GGUFReader(source).tensors}


def damaged(source: Path, out: Path, change: Change) -> Path:
    """A copy of a file in F32 in which one thing is wrong."""
    keys = own_keys(source)
    tensors = {name: values.copy() for name, values in _tensors(source).items()}
    change(keys, tensors)
    listed = [(n, values.shape[::-1], F32, values.tobytes()) for n, values in tensors.items()]
    return raw_file(out, keys, listed)


def own_keys(path: Path) -> dict[str, bytes]:
    """The keys of a file as they stand in it, without the architecture."""
    header, data = read_header(path), path.read_bytes()
    return {
        key: data[start + 8 + len(key.encode()) : end]
        for key, (start, end) in header.spans.items()
        if key not in ("general.architecture",) and not key.startswith("ropewalk.")
    }
