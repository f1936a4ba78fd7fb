"""A GGUF file written anew: some keys and factor tensors changed, all else copied byte for byte.

What is copied is never understood: keys as the bytes that they are, tensors by where they begin and
where the next one does, so that a type that nobody here knows is copied as well. A tensor goes from
file to file inside the system where it can (copy_file_range), and holes stay holes, so that neither
memory nor time grows with what is not there.

A model in several files becomes the same files, or one.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ropewalk.errors import InputError
from ropewalk.gguf import parts as split
from ropewalk.gguf.header import F32, MAGIC, GGUFHeader
from ropewalk.gguf.sizes import bytes_of
from ropewalk.schedule import FloatArray

Report = Callable[[float], None]
_AT_ONCE = 64 * 2**20
_CHUNK = 2**20
_NOT_IN_THE_SYSTEM = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)
"""Errors of copy_file_range if these files cannot be copied inside the system."""
_SPLIT = (split.NUMBER, split.COUNT, split.TENSORS)
_KINDS = {"<H": 2, "<I": 4, "<i": 5, "<f": 6, "<Q": 10}


@dataclass(frozen=True, eq=False)
class Changes:
    """Changes that a copy makes to its source."""

    keys: Mapping[str, bytes] = field(default_factory=dict)
    """Values by their whole key, as `text` and `number` make them."""
    without: frozenset[str] = frozenset()
    """Keys that are left out."""
    tensors: Mapping[str, FloatArray] = field(default_factory=dict)
    """Tensors in F32, in front of those of the source."""
    without_tensors: frozenset[str] = frozenset()


def text(value: str) -> bytes:
    """A string as the value of a key."""
    return struct.pack("<I", 8) + _counted(value)


def number(form: str, value: float) -> bytes:
    """A number as the value of a key, by its struct format."""
    return struct.pack("<I", _KINDS[form]) + struct.pack(form, value)


def needs(parts: Sequence[GGUFHeader]) -> int:
    """The bytes that a copy takes on a disk: holes take none."""
    return sum(os.stat(part.path).st_blocks * 512 for part in parts) + 2**20


def join(
    parts: Sequence[GGUFHeader], out: Path, changes: Changes, report: Report = lambda done: None
) -> None:
    """Write a model into one file, whether it was in one or in several."""
    without = changes.without | (frozenset(_SPLIT) if len(parts) > 1 else frozenset())
    plan = _File(parts[0], tuple(parts), changes.keys, without, changes)
    plan.write(out, _progress(report, [plan]))


def rewrite_parts(
    parts: Sequence[GGUFHeader], folder: Path, changes: Changes, report: Report = lambda done: None
) -> tuple[Path, ...]:
    """Write a model into a folder, in the files that it was in; the metadata is in the first."""
    kept = sum(name not in changes.without_tensors for part in parts for name in part.tensors)
    files = []
    for i, part in enumerate(parts):
        keys = changes.keys if i == 0 else {}
        if split.TENSORS in part.values:
            keys = {**keys, split.TENSORS: number("<i", kept + len(changes.tensors))}
        edits = changes if i == 0 else Changes(without_tensors=changes.without_tensors)
        files.append(_File(part, (part,), keys, changes.without, edits))
    progress = _progress(report, files)
    for file in files:
        file.write(folder / file.header.path.name, progress)
    return tuple(folder / part.path.name for part in parts)


@dataclass(frozen=True, eq=False)
class _File:
    """One file to write."""

    header: GGUFHeader
    """The header whose keys it has."""
    sources: tuple[GGUFHeader, ...]
    """The headers whose tensors it has."""
    keys: Mapping[str, bytes]
    without: frozenset[str]
    changes: Changes

    @cached_property
    def pieces(self) -> list[tuple[GGUFHeader, str, int]]:
        """The tensors that are copied, in the order in which they lie, with their sizes."""
        return [
            (header, name, size)
            for header in self.sources
            for name, size in spans(header).items()
            if name not in self.changes.without_tensors and name not in self.changes.tensors
        ]

    def write(self, out: Path, progress: Callable[[int], None]) -> None:
        pieces, alignment = self.pieces, self.header.alignment
        # The places of all tensors: new ones first, then the others in their order.
        added = {
            name: values.astype("<f4").tobytes() for name, values in self.changes.tensors.items()
        }
        infos, starts, end = [], [], 0
        for name, content in added.items():
            infos.append(_info(name, (len(content) // 4,), F32, end))
            end = _padded(end + len(content), alignment)
        for header, name, size in pieces:
            place = header.tensors[name]
            infos.append(_info(name, place.shape, place.kind, end))
            starts.append(end)
            end = _padded(end + size, alignment)
        # Header: what is kept is copied byte for byte, which a parsed value might not give back.
        kept = [
            (key, span)
            for key, span in self.header.spans.items()
            if key not in self.without and key not in self.keys
        ]
        with out.open("xb") as file:
            count = len(kept) + len(self.keys)
            file.write(MAGIC + struct.pack("<IQQ", self.header.version, len(infos), count))
            file.flush()
            at = file.tell()
            with self.header.path.open("rb") as source:
                for _, (start, stop) in kept:
                    size = stop - start
                    copy_span(source.fileno(), start, file.fileno(), at, size, lambda copied: None)
                    at += size
            file.seek(at)
            for key, value in self.keys.items():
                file.write(_counted(key) + value)
            for info in infos:
                file.write(info)
            # Data: small new tensors are written, the others copied from file to file.
            data = _padded(file.tell(), alignment)
            at = data
            for content in added.values():
                file.seek(at)
                file.write(content)
                at = _padded(at + len(content), alignment)
            file.flush()
            for (header, name, size), begin in zip(pieces, starts, strict=True):
                with header.path.open("rb") as source:
                    copy_span(
                        *(source.fileno(), header.tensors[name].start),
                        *(file.fileno(), data + begin, size),
                        progress,
                    )
            os.ftruncate(file.fileno(), data + end)


def spans(header: GGUFHeader) -> dict[str, int]:
    """The bytes of each tensor, in the order in which they lie.

    A type whose blocks are not known takes all bytes up to the next tensor or the end of the file.
    """
    whole = header.path.stat().st_size
    laid = sorted(header.tensors.items(), key=lambda item: item[1].start)
    if not laid:  # the first part of some split models has only the metadata
        return {}
    ends = [*(place.start for _, place in laid[1:]), whole]
    sizes = {}
    for (name, place), end in zip(laid, ends, strict=True):
        size = bytes_of(place)
        room = end - place.start
        if size is None:
            size = room
        if place.start > whole or place.start + size > whole:
            raise InputError(
                f"{header.path}: ends within {name}, which would end at byte "
                f"{place.start + size:,} of {whole:,}; copy it again"
            )
        if size > room:
            raise InputError(f"{header.path}: {name} overlaps the next tensor; convert it again")
        if (place.start - header.data) % header.alignment:
            raise InputError(
                f"{header.path}: {name} does not begin at a multiple of {header.alignment} bytes; "
                "convert it again"
            )
        if end < whole and room - size >= header.alignment:
            raise InputError(
                f"{header.path}: {name} would end {room - size:,} bytes before the next tensor, so "
                "its type or shape is not the one that was written; convert it again"
            )
        sizes[name] = size
    return sizes


def copy_span(
    source: int, start: int, out: int, place: int, size: int, progress: Callable[[int], None]
) -> None:
    """Copy bytes between open files, without the holes among them."""
    for begin, end in stretches(source, start, start + size):
        progress_from = begin
        while begin < end:
            count = _copied(source, begin, out, place + begin - start, min(end - begin, _AT_ONCE))
            if not count:
                raise InputError("the source became shorter while it was copied; copy it again")
            begin += count
        progress(end - progress_from)


def _copied(source: int, start: int, out: int, place: int, count: int) -> int:
    """The number of bytes copied: some, at least, unless the source ends there."""
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source, out, count, start, place)
        except OSError as error:
            if error.errno not in _NOT_IN_THE_SYSTEM:
                raise
    content = os.pread(source, min(count, _CHUNK), start)
    return os.pwrite(out, content, place) if content else 0


def stretches(source: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The stretches of a file that are no holes; all of it if the system cannot tell."""
    at = start
    while at < end:
        try:
            begin = max(at, os.lseek(source, at, os.SEEK_DATA))
            stop = os.lseek(source, begin, os.SEEK_HOLE)
        except (OSError, AttributeError) as error:  # the second where the system has no holes
            if getattr(error, "errno", 0) == errno.ENXIO:  # nothing but holes from here on
                return
            begin, stop = at, end
        if begin >= end:
            return
        yield begin, min(stop, end)
        at = stop


def _info(name: str, shape: tuple[int, ...], kind: int, start: int) -> bytes:
    form = f"<I{len(shape)}QIQ"
    return _counted(name) + struct.pack(form, len(shape), *shape, kind, start)


def _counted(text: str) -> bytes:
    """A string as the format has it: its length, then its bytes."""
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _progress(report: Report, files: Sequence[_File]) -> Callable[[int], None]:
    total = max(1, sum(size for file in files for _, _, size in file.pieces))
    done = 0

    def progress(more: int) -> None:
        nonlocal done
        done += more
        report(min(1.0, done / total))

    return progress
