"""GGUF headers that lead nowhere are refused in a line."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ropewalk.errors import InputError
from ropewalk.gguf.header import read_header

ARRAY, BYTE, STRING = 9, 0, 8


def with_array(path: Path, inner: bytes) -> Path:
    """A file of one key, an array."""
    path.write_bytes(
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
        + struct.pack("<I", ARRAY) + inner
    )  # fmt: skip
    return path


@pytest.mark.parametrize("depth", [1, 5000])
def test_arrays_in_arrays_are_refused(depth: int, tmp_path: Path) -> None:
    inner = struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQB", BYTE, 1, 0)
    with pytest.raises(InputError, match=r"an array of arrays, which llama\.cpp does not load"):
        read_header(with_array(tmp_path / "nested.gguf", inner))


def test_an_array_of_more_items_than_any_model_has_is_refused(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", STRING, 2**40) + bytes(1000)
    with pytest.raises(InputError, match="more entries than a model has"):
        read_header(with_array(tmp_path / "many.gguf", inner))
