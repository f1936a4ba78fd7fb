"""The manifest of an exported folder: its runtime, and the size and SHA-256 of each of its files.

It is written last, into the folder, and `verify` judges the folder by that runtime, and compares
the files with it. So it tells a copy that arrived whole from one that did not; it is no signature,
for whoever changes a file on purpose can change the manifest too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ropewalk.errors import InputError, InvalidValue
from ropewalk.outputs import EXPORT_FILE, is_ours
from ropewalk.untrusted import read_json
from ropewalk.values import RESTORE, Value

MANIFEST = EXPORT_FILE
CARD, SOURCE_CARD = "README.md", "README.source.md"
"""The card of an export, and that of its source. The first is in no manifest, nor are its pictures:
a person may edit it, and no runtime reads it."""
MOST_FILES = 100_000
MOST_BYTES = 32 * 2**20
_CHUNK = 2**18
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class FileDigest(Value):
    """The content of one file."""

    size: int
    sha256: str

    def __post_init__(self) -> None:
        if self.size < 0:
            raise InvalidValue("size", self.size, "must be at least 0", RESTORE)
        if not _DIGEST.fullmatch(self.sha256):
            raise InvalidValue("sha256", self.sha256, "must be 64 hexadecimal digits", RESTORE)


@dataclass(frozen=True, eq=False)
class Manifest(Value):
    """The files of a folder by name, and what they were written for."""

    files: Mapping[str, FileDigest]
    runtime: str = ""
    """The runtime; empty if none is known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.files) > MOST_FILES:
            raise InvalidValue("files", len(self.files), f"are more than {MOST_FILES}", RESTORE)
        for name in self.files:
            if not is_listable(name):
                raise InvalidValue("files", name, "must name a file of the same folder", RESTORE)

    @property
    def bytes(self) -> int:
        return sum(digest.size for digest in self.files.values())

    @classmethod
    def of(
        cls,
        folder: Path,
        progress: Callable[[float], None] = lambda done: None,
        *,
        runtime: str = "",
    ) -> Manifest:
        """The manifest of a folder in its present state."""
        paths = [path for path in sorted(folder.iterdir()) if path.name != MANIFEST]
        total = sum(path.stat().st_size for path in paths)
        files, before = {}, 0
        for path in paths:
            size = path.stat().st_size
            files[path.name] = FileDigest(size, sha256(path, progress, before, total))
            before += size
        return cls(files, runtime)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest that a folder carries; a damaged one is refused by key."""
        path = folder / MANIFEST
        value = read_json(path, max_bytes=MOST_BYTES)
        if isinstance(value, dict):  # older ones list files alone
            value = {"runtime": "", **value}
        return cls.from_json(value, f"{path}: ")

    def unlisted(self, folder: Path) -> list[str]:
        """The files that are neither in it nor the card that ropewalk wrote."""
        listed = {MANIFEST, *self.files}
        names = sorted(path.name for path in folder.iterdir() if path.name not in listed)
        return [name for name in names if not is_ours(folder / name)]

    def write(self, folder: Path) -> None:
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False)
        (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")


def digests_of(export: Path) -> dict[str, str]:
    """The SHA-256 of each file of an export: of a GGUF file, or of those that a manifest lists."""
    if export.is_file():
        return {export.name: sha256(export)}
    listed = Manifest.read(export).files.items()
    return {f"{export.name}/{name}": file.sha256 for name, file in listed}


def check_unchanged(
    folder: Path, once_removed: str = "have it made again", *, only: Container[str] | None = None
) -> None:
    """Refuse a folder with a file that has changed since it was written; others may be added.

    `once_removed` says what the same command does without the folder; `only` these are looked at.
    """
    for name, digest in Manifest.read(folder).files.items():
        if only is not None and name not in only:
            continue
        path = folder / name
        if not path.is_file() or FileDigest(path.stat().st_size, sha256(path)) != digest:
            raise InputError(f"{path}: is not as it was written; remove {folder} to {once_removed}")


def is_listable(name: str) -> bool:
    """True if it names a file of the folder itself: no path leads out of it."""
    return name not in ("", ".", "..") and name.isprintable() and not set(name) & {"/", "\\"}


def sha256(
    path: Path,
    progress: Callable[[float], None] = lambda done: None,
    before: int = 0,
    total: int = 0,
) -> str:
    """The digest of a file; `progress` is told the share of `total`, of which `before` is done."""
    digest = hashlib.sha256()
    for chunk in _chunks(path):
        digest.update(chunk)
        before += len(chunk)
        progress(min(1.0, before / max(total, 1)))
    return digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
