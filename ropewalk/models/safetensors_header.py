"""The header of a safetensors file: its tensors, and whether the file holds all of them; and the
index of several files.

The format: eight bytes with the header's length, a JSON header with each tensor's type, shape and
place, and the tensors, one after the other up to the last byte. The same rules as in the library,
in a reader that needs nothing installed and says which of them is broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from ropewalk.errors import InputError, Unsupported, shortened
from ropewalk.untrusted import parse_json, read_text

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OF_MISTRAL = "consolidated*.safetensors"
"""Files in Mistral's own format."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
MOST_INDEX = 32 * 2**20
"""The bytes of an index; that of DeepSeek-V3 has nine million."""
_LONGEST_NAME = 200
"""The longest name of a file of weights; file systems take names of 255 bytes."""
MOST_HEADER = 16 * 2**20
"""The header of a file of a hundred thousand tensors."""
_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


class Stored(NamedTuple):
    """One tensor of a file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_header(path: Path) -> dict[str, Stored]:
    """The tensors of a file by name; an InputError names the damage of a file that is not whole."""
    length, value = read_json_header(path)
    metadata = value.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise InputError(f"{path.name}: the __metadata__ of its header must map strings to strings")
    stored = {name: _stored(path, name, entry) for name, entry in sorted(value.items())}
    _check_places(path, stored, path.stat().st_size - 8 - length)
    return stored


def read_json_header(path: Path) -> tuple[int, dict[str, Any]]:
    """The bytes that a header takes, and its content, in which nothing is checked."""
    try:
        # A stranger's file: its size bounds the header before anything of that length is read.
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little")
            if len(prefix) < 8 or length > size - 8:
                said = f"its {size:,} bytes are too few for its header" if size else "is empty"
                pointer = prefix == b"version " and "is a pointer of Git LFS: git lfs pull gets it"
                raise InputError(f"{path.name}: {pointer or said}")
            if length > MOST_HEADER:
                raise Unsupported(
                    f"{path.name}: its header of {length:,} bytes is larger than the limit of "
                    f"{MOST_HEADER:,}"
                )
            content = file.read(length)
    except OSError as error:
        raise InputError(f"{path.name}: cannot be read ({error.strerror})") from None
    # The library asks for the same, and no whitespace before the object.
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path.name}: its header is not UTF-8 text") from None
    value = parse_json(text, source=f"{path.name}: its header")
    if not isinstance(value, dict) or not text.startswith("{"):
        raise InputError(f"{path.name}: its header is not a JSON object")
    return length, value


def read_index(path: Path) -> tuple[dict[str, str], bool]:
    """The file of each tensor by an index; and whether transformers, which asks for `metadata`,
    loads by it."""
    index = parse_json(read_text(path, max_bytes=MOST_INDEX), source=path.name)
    named = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(index, dict) or not isinstance(named, dict) or not named:
        raise InputError(f"{path.name}: has no weight_map of file names")
    for name, file in named.items():
        usual = isinstance(file, str) and Path(file).name == file and file.isprintable()
        if not usual or len(file) > _LONGEST_NAME:
            said = f"{shortened(name)} = {shortened(file)} must name a file of the same folder"
            raise InputError(f"{path.name}: {said}")
    return named, isinstance(index.get("metadata"), dict)


def _stored(path: Path, name: str, entry: object) -> Stored:
    if not isinstance(entry, Mapping):
        raise InputError(f"{path.name}: its header does not describe {name!r}")
    dtype: object = entry.get("dtype")
    shape: object = entry.get("shape")
    offsets: object = entry.get("data_offsets")
    if not (_counts(shape) and _counts(offsets) and len(offsets) == 2 and isinstance(dtype, str)):
        raise InputError(
            f"{path.name}: its header states no readable type, shape or place for {name!r}"
        )
    if dtype not in _BITS:
        raise Unsupported(f"{path.name}: {name!r} has the type {dtype[:20]!r}, not known here")
    start, end = offsets
    if _bytes(shape, _BITS[dtype], most=end) != end - start:
        raise InputError(
            f"{path.name}: {name!r} has {max(0, end - start):,} bytes, which is not the size of a "
            f"tensor of its shape and type {dtype}"
        )
    return Stored(dtype, tuple(shape), start, end)


def _counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value
    )


def _bytes(shape: list[int], bits: int, most: int) -> int:
    """The size of a tensor; -1 if it is not whole bytes, or so large that it cannot be there."""
    if 0 in shape:
        return 0
    count = 1
    for width in shape:
        count *= width
        if count > 8 * most:  # a hostile shape would multiply for minutes
            return -1
    return -1 if count * bits % 8 else count * bits // 8


def _check_places(path: Path, stored: Mapping[str, Stored], room: int) -> None:
    """Every byte behind the header belongs to exactly one tensor."""
    at = 0
    for name, tensor in sorted(stored.items(), key=lambda item: item[1][2:]):
        if tensor.start != at:
            where = "overlaps the tensor before it" if tensor.start < at else "leaves a gap"
            raise InputError(f"{path.name}: {name!r} {where}, at byte {tensor.start:,}")
        at = tensor.end
    if at != room:
        raise InputError(
            f"{path.name}: its header describes {at:,} bytes of tensors, but {room:,} are there"
        )
