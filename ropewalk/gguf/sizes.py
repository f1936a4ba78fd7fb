"""The number of bytes a tensor takes, by its type: GGML's blocks of values."""

from __future__ import annotations

import json
import math
from pathlib import Path

from ropewalk.gguf.header import TensorPlace

_ROWS = json.loads(Path(__file__).with_name("blocks.json").read_text(encoding="utf-8"))
NAMES: dict[int, str] = {row["type"]: row["name"] for row in _ROWS}
"""GGML's names of types, by its numbers."""
BLOCKS: dict[int, tuple[int, int]] = {row["type"]: (row["values"], row["bytes"]) for row in _ROWS}
"""By GGML's number of a type, the values of a block and its bytes."""
SCALES = {row["type"]: tuple(row["scales"]) for row in _ROWS if "scales" in row}
"""Where the scales of a block are, in F16, for quantised types."""


def bytes_of(place: TensorPlace) -> int | None:
    """The size of a tensor; None if its type is unknown."""
    if place.kind not in BLOCKS:
        return None
    block, size = BLOCKS[place.kind]
    return -(-math.prod(place.shape) // block) * size
