"""What a command leaves on disk, so that a crash at any moment leaves the old state or the new."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ropewalk.errors import InputError


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Replace a file in one step: a reader sees all of the old content or all of the new."""
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())  # mkstemp's files are private
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_directory(directory: Path) -> None:
    """The rename itself is on disk only when the directory is."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
