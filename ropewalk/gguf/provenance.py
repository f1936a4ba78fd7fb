"""The provenance of an exported GGUF file, in its metadata: its plan, and a digest of itself.

The digest is the SHA-256 of the whole file with the 64 characters of the digest as zeros, so it
covers every other byte: keys, vocabulary and tensors. llama.cpp passes over keys that it does not
know.
The size of the file is kept with it: a tool that writes the file anew, such as llama-quantize,
copies both into a file of another size, of which the digest says nothing.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from ropewalk.gguf.header import GGUFHeader, read_header

SHA256, SIZE = "ropewalk.sha256", "ropewalk.size"
PLAN = "ropewalk.plan"
"""The plan that the file follows, as JSON."""
BLANK = "0" * 64
_CHUNK = 2**18

Seal = Literal["none", "of another file", "kept", "broken"]


def name_of(model: str) -> str:
    """A model's own name: the last part of a path, or of the hub's ORG/NAME.

    In the hub's cache that is models--ORG--NAME/snapshots/HASH.
    """
    path = Path(model.rstrip("/\\"))
    if path.parent.name == "snapshots":
        path = Path(path.parents[1].name.rpartition("--")[2])
    return path.name.rpartition("\\")[2] or "model"


def reserve(writer: Any, plan: str) -> None:
    """The plan, and room for the digest, in a file that is being written."""
    writer.add_string(PLAN, plan)
    writer.add_string(SHA256, BLANK)
    writer.add_uint64(SIZE, 0)


def seal(path: Path) -> None:
    """Fill in what was reserved, once the file is written."""
    header = read_header(path)
    with path.open("r+b") as file:
        place, form = header.places[SIZE]
        file.seek(place)
        file.write(struct.pack(form, path.stat().st_size))
        file.flush()
        file.seek(header.places[SHA256][0])
        file.write(digest(header).encode("ascii"))


def seal_of(header: GGUFHeader, progress: Callable[[float], None] = lambda done: None) -> Seal:
    """True if every byte of a file is what it was when the file was sealed."""
    said, size = header.values.get(SHA256), header.values.get(SIZE)
    if SHA256 not in header.values and SIZE not in header.values:
        return "none"
    if not isinstance(said, str) or len(said) != len(BLANK) or not isinstance(size, int):
        return "broken"
    if size != header.path.stat().st_size:
        return "of another file"
    return "kept" if digest(header, progress) == said else "broken"


def digest(header: GGUFHeader, progress: Callable[[float], None] = lambda done: None) -> str:
    """The SHA-256 of a file with its own digest as zeros."""
    place, _ = header.places[SHA256]
    end = place + len(BLANK)
    total = header.path.stat().st_size
    sha256, at = hashlib.sha256(), 0
    with header.path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            low, high = max(place - at, 0), min(end - at, len(chunk))
            if low < high:
                chunk = chunk[:low] + b"0" * (high - low) + chunk[high:]
            sha256.update(chunk)
            at += len(chunk)
            progress(min(1.0, at / total))
    return sha256.hexdigest()
