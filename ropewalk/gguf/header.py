"""The header of a GGUF file: its keys, and the places of its tensors.

A reader of our own, because the file may come from anywhere: every count and length is checked
against what is left of the file before it is followed, and arrays (a vocabulary has hundreds of
thousands of entries) are walked over, not built.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ropewalk.errors import InputError, shortened
from ropewalk.schedule import FloatArray

MAGIC = b"GGUF"
F32 = 0
FREQUENCIES = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
_VERSIONS = (2, 3)
_MOST_ENTRIES = 1 << 20
_MOST_ITEMS = 1 << 24
"""The most items of one array: many times the tokens and merges of any vocabulary."""
_MOST_STEPS = 1 << 22
"""The most items walked one by one in the whole header: keys, tensors, and strings in arrays. It is
several times the tokens and merges of the largest vocabularies, and some seconds."""
_MOST_NAME = 1 << 16
"""Bytes of a key or of a tensor's name."""
_MOST_TEXT = 1 << 26
"""Bytes of all names and strings that are kept: a chat template, a plan, a licence."""
_MOST_ALIGNMENT = 1 << 24
MOST_LAYERS = 4096
_STRING, _ARRAY = 8, 9
_SCALARS = {kind: f"<{form}" for kind, form in enumerate("BbHhIif?  Qqd") if form != " "}
"""How numbers are stored, by GGUF's number of their type."""
_FORMS = {"uint32": "I", "float32": "f", "bool": "?", "text": "s"}
"""The letters of these types in struct's formats."""


@dataclass(frozen=True)
class TensorPlace:
    """The place of a tensor in the file."""

    shape: tuple[int, ...]
    kind: int
    """GGML's number for its type; 0 is F32."""
    start: int
    """From the beginning of the file."""
    path: Path | None = None
    """The file, if it is not that of the header: a part of a split model."""


@dataclass(frozen=True)
class GGUFHeader:
    path: Path
    values: dict[str, object] = field(default_factory=dict)
    """Scalars and strings by key; arrays are left out."""
    places: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The places of the bytes of scalars and strings, and their struct formats."""
    lengths: dict[str, int] = field(default_factory=dict)
    """The number of entries an array has, by key."""
    items: dict[str, str] = field(default_factory=dict)
    """The type of an array's entries, by key: a letter of struct's formats, `s` for text."""
    tensors: dict[str, TensorPlace] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The span of each key with its value, arrays too, in the order of the file."""
    data: int = 0
    """The place at which the tensors begin."""
    alignment: int = 32
    """Every tensor begins at a multiple of this, from there."""
    version: int = 3

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    def get(self, key: str) -> object:
        """A value of this architecture: `rope.freq_base`."""
        return self.values.get(f"{self.architecture}.{key}")

    def mistyped(self, key: str, kind: str) -> bool:
        """True if a key is stored as another type than the one llama.cpp loads, or as a list."""
        _, form = self.places.get(key, (0, _FORMS[kind]))
        return key in self.lengths or not form.endswith(_FORMS[kind])

    def number(self, key: str) -> float | None:
        value = self.get(key)
        return None if isinstance(value, str | bool) or value is None else float(str(value))

    def count(self, key: str) -> int | None:
        """A number of things: whole, and above zero."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            return None
        return value

    def counts(self, key: str) -> tuple[int, ...]:
        """The numbers that this architecture lists for its layers; empty without a list of such."""
        name = f"{self.architecture}.{key}"
        count = self.lengths.get(name, 0)
        if not 0 < count <= MOST_LAYERS:
            return ()
        begin, end = self.spans[name]
        with self.path.open("rb") as file:
            file.seek(begin + 8 + len(name.encode()) + 4)  # behind the key and its type
            content = file.read(end - file.tell())
        (inner,) = struct.unpack_from("<I", content)
        form = _SCALARS.get(inner, "<f")[1]
        if form in "fd":
            return ()
        return tuple(map(int, struct.unpack_from(f"<{count}{form}", content, 12)))

    def texts(self, key: str) -> list[bytes]:
        """The texts of an array of such."""
        begin, end = self.spans[key]
        with self.path.open("rb") as file:
            file.seek(begin + 8 + len(key.encode()) + 16)  # behind the key, its type and its count
            content = file.read(end - file.tell())
        texts, at = [], 0
        while at < len(content):
            (size,) = struct.unpack_from("<Q", content, at)
            texts.append(content[at + 8 : at + 8 + size])
            at += 8 + size
        return texts

    def floats(self, tensor: str) -> FloatArray:
        """The values of an F32 tensor."""
        place = self.tensors[tensor]
        count = int(np.prod(place.shape))
        with (place.path or self.path).open("rb") as file:
            file.seek(place.start)
            content = file.read(4 * count)
        if len(content) < 4 * count:
            raise InputError(f"{self.path}: ends within {tensor}; copy it again")
        return np.frombuffer(content, dtype="<f4").astype(np.float64)


def is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def read_header(path: str | Path) -> GGUFHeader:
    path = Path(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Walk(path, data).header()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except (struct.error, ValueError) as error:
        why = "" if isinstance(error, struct.error) else f" ({error})"
        raise InputError(
            f"{path}: is not a whole GGUF file{why}; copy or convert it again"
        ) from None


class _Walk:
    """A position in the file that only moves forward."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at = path, data, 0
        self.text_left, self.steps_left = _MOST_TEXT, _MOST_STEPS

    def take(self, form: str) -> int | float | bool:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        result: int | float | bool = value
        return result

    def count(self) -> int:
        return int(self.take("<Q"))

    def skip(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise ValueError("beyond the end")
        self.at += size

    def text(self, what: str) -> str:
        size = self.count()
        start = self.at
        self.skip(size)
        self.text_left -= size
        if self.text_left < 0:
            raise ValueError(f"{what} brings its text to more than {_MOST_TEXT >> 20} MiB")
        try:
            return self.data[start : self.at].decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{what} is not UTF-8") from None

    def name(self, what: str) -> str:
        """A key or a tensor's name."""
        (size,) = struct.unpack_from("<Q", self.data, self.at)
        if not 0 < size <= min(_MOST_NAME, len(self.data) - self.at):
            raise ValueError(f"{what} with a name of {size:,} bytes, not 1 to {_MOST_NAME:,}")
        return self.text(f"the name of {what}")

    def steps(self, count: int) -> None:
        """Take from what a header may have walked one by one, so that its time is bounded."""
        self.steps_left -= count
        if self.steps_left < 0:
            raise ValueError(f"more than {_MOST_STEPS:,} keys, tensors and strings")

    def entries(self, most: int = _MOST_ENTRIES) -> int:
        count = self.count()
        if count > most:
            raise ValueError("more entries than a model has")
        return count

    def skip_array(self) -> tuple[int, str]:
        """Walk over an array, and return the number of its items, and their type."""
        inner, count = int(self.take("<I")), self.entries(_MOST_ITEMS)
        if inner == _ARRAY:
            raise ValueError("an array of arrays, which llama.cpp does not load")
        if inner in _SCALARS:
            self.skip(count * struct.calcsize(_SCALARS[inner]))
        elif inner == _STRING:
            self.steps(count)
            self.skip_strings(count)
        else:
            raise ValueError("a type that GGUF does not have")
        return count, _SCALARS.get(inner, "s")[-1]

    def skip_strings(self, count: int) -> None:
        """Walk over the strings of an array; a short loop, for a vocabulary is long."""
        length, data, at, end = struct.Struct("<Q").unpack_from, self.data, self.at, len(self.data)
        for _ in range(count):
            at += 8 + length(data, at)[0]
            if at > end:
                raise ValueError("beyond the end")
        self.at = at

    def header(self) -> GGUFHeader:
        if self.data[:4] != MAGIC:
            raise InputError(f"{self.path}: is not a GGUF file")
        self.at = 4
        version = int(self.take("<I"))
        if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
            raise InputError(
                f"{self.path}: is a big-endian GGUF file, and only little-endian ones are read; "
                "convert it again, without --bigendian"
            )
        if version not in _VERSIONS:
            raise InputError(
                f"{self.path}: GGUF version {version} is not one of {_VERSIONS}; convert it again"
            )
        # Keys: scalars and strings are read, arrays walked over, for a vocabulary is large.
        header = GGUFHeader(self.path)
        tensors, keys = self.entries(), self.entries()
        self.steps(tensors + keys)
        for _ in range(keys):
            begin = self.at
            key, kind = self.name("a key"), int(self.take("<I"))
            if key in header.spans:
                raise ValueError(f"the key {shortened(key)} stands in it twice")
            if kind == _STRING:
                start = self.at + 8
                header.values[key] = self.text(f"the key {shortened(key)}")
                header.places[key] = (start, f"{self.at - start}s")
            elif kind in _SCALARS:
                header.places[key] = (self.at, _SCALARS[kind])
                header.values[key] = self.take(_SCALARS[kind])
            elif kind == _ARRAY:
                header.lengths[key], header.items[key] = self.skip_array()
            else:
                raise ValueError("a type that GGUF does not have")
            header.spans[key] = begin, self.at
        # Tensors: their places count from where the data begins, which is known after the last one.
        relative: dict[str, TensorPlace] = {}
        for _ in range(tensors):
            name, dimensions = self.name("a tensor"), int(self.take("<I"))
            if name in relative:
                raise ValueError(f"the tensor {shortened(name)} stands in it twice")
            if dimensions > 4:
                raise ValueError("more dimensions than GGML has")
            shape = tuple(self.count() for _ in range(dimensions))
            relative[name] = TensorPlace(shape, int(self.take("<I")), self.count())
        alignment = header.values.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= _MOST_ALIGNMENT:
            raise ValueError("an alignment that is no size")
        if alignment & (alignment - 1):
            raise ValueError(f"an alignment of {alignment}, which is no power of two")
        data = -(-self.at // alignment) * alignment
        for name, place in relative.items():
            header.tensors[name] = TensorPlace(place.shape, place.kind, data + place.start)
        return replace(header, data=data, alignment=alignment, version=version)
