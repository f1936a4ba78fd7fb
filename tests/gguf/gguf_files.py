"""GGUF files, whole and with one thing wrong."""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from ropewalk.gguf.header import F32

HEAD = 16
PAIRS = HEAD // 2


def header_only(
    path: Path,
    *,
    architecture: str = "llama",
    keys: Mapping[str, Any] | None = None,
    drop: Iterable[str] = (),
    tensors: Mapping[str, NDArray[Any]] | None = None,
) -> Path:
    """A file that says how a small model turns, and holds no model."""
    stated: dict[str, Any] = {
        "context_length": 4096,
        "embedding_length": 4 * HEAD,
        "attention.head_count": 4,
        "rope.dimension_count": HEAD,
        "rope.freq_base": 500_000.0,
        "rope.scaling.original_context_length": 512,
        **(keys or {}),
    }
    writer = gguf.GGUFWriter(path, architecture)
    # What a vocabulary looks like: lists of strings and of numbers, to be walked over.
    writer.add_array("tokenizer.ggml.tokens", ["a", "straße", "🙂"])
    writer.add_array("tokenizer.ggml.scores", [0.0, 1.0, 2.0])
    for key, value in stated.items():
        if key in drop:
            continue
        name = f"{architecture}.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    return finished(writer, path)


def finished(writer: gguf.GGUFWriter, path: Path) -> Path:
    """The file, once all that was added is written to it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rewritten(source: Path, path: Path, keys: Mapping[str, Any], drop: Iterable[str] = ()) -> Path:
    """A copy of a file with other values under some of its keys, and without some tensors."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(path, architecture)
    own = {f"{architecture}.{key}": value for key, value in keys.items()}
    _copy_keys(reader, writer, own)
    for name, value in own.items():
        if isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_float32(name, value)
    for tensor in reader.tensors:
        if tensor.name not in drop:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    return finished(writer, path)


def _copy_keys(
    reader: gguf.GGUFReader, writer: gguf.GGUFWriter, without: Container[str] = ()
) -> None:
    for name, item in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in without:
            continue
        inner = item.types[-1] if item.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, item.contents(), item.types[0], inner)


def raw_file(
    path: Path,
    keys: Mapping[str, bytes],
    tensors: Iterable[tuple[str, tuple[int, ...], int, bytes | int]],
    *,
    alignment: int = 32,
) -> Path:
    """A file of any content, by the format's description: tensors of any type, also unknown ones.

    Keys come as encoded values, with their type. A tensor's content may be a number of bytes, which
    become a hole.
    """
    own = {"general.architecture": text("llama"), **keys}
    if alignment != 32:
        own["general.alignment"] = struct.pack("<II", 4, alignment)
    listed = list(tensors)
    out = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(own))
    for key, value in own.items():
        out += _counted(key) + value
    at, places = 0, []
    for name, shape, kind, content in listed:
        out += _counted(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        out += struct.pack("<IQ", kind, at)
        places.append(at)
        size = content if isinstance(content, int) else len(content)
        at += -(-size // alignment) * alignment
    data = -(-len(out) // alignment) * alignment
    with path.open("wb") as file:
        file.write(out)
        for place, (_, _, _, content) in zip(places, listed, strict=True):
            if isinstance(content, bytes):
                file.seek(data + place)
                file.write(content)
        file.truncate(data + at)
    return path


def text(value: str) -> bytes:
    """A string as the value of a key."""
    return struct.pack("<I", 8) + _counted(value)


def uint32(value: int) -> bytes:
    return struct.pack("<II", 4, value)


def float32(value: float) -> bytes:
    return struct.pack("<If", gguf.GGUFValueType.FLOAT32, value)


KEYS = {
    "llama.context_length": uint32(512),
    "llama.embedding_length": uint32(64),
    "llama.attention.head_count": uint32(4),
    "llama.rope.freq_base": float32(1e4),
}
"""What a raw file says of a small model."""
NORM = ("blk.0.attn_norm.weight", (64,), F32, b"\0" * 256)
"""A tensor of it."""


def split_keys(number: int, count: int, tensors: int) -> dict[str, bytes]:
    """What a part of a split model says of itself."""
    return {
        "split.no": struct.pack("<IH", 2, number),
        "split.count": struct.pack("<IH", 2, count),
        "split.tensors.count": struct.pack("<Ii", 5, tensors),
    }


def _counted(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def split(source: Path, folder: Path, count: int) -> list[Path]:
    """A model in several files, as llama.cpp's gguf-split makes them; the first has the keys."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    folder.mkdir()
    shares = np.array_split(np.arange(len(reader.tensors)), count)
    paths = []
    for i, share in enumerate(shares):
        paths.append(folder / f"{source.stem}-{i + 1:05}-of-{count:05}.gguf")
        writer = gguf.GGUFWriter(paths[-1], architecture)
        if i:
            writer.kv_data[0].pop("general.architecture")
        else:
            _copy_keys(reader, writer)
        writer.add_uint16("split.no", i)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for at in share:
            tensor = reader.tensors[int(at)]
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        finished(writer, paths[-1])
    return paths
