"""GGUF files, whole and with one thing wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

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
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
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
    for name, item in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in own:
            continue
        inner = item.types[-1] if item.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, item.contents(), item.types[0], inner)
    for name, value in own.items():
        if isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_float32(name, value)
    for tensor in reader.tensors:
        if tensor.name not in drop:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
