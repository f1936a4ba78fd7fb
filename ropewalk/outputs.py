"""The one policy for writing files, for all verbs, and for replacing a file in one step.

- Only regular files are written. A link, a pipe or a device is refused; `-` prints instead.
- Nothing is written to the source: not over it, not into its folder.
- An existing file is replaced only if ropewalk wrote it, or if the user says so (`overwrite`).
- A file of a run, an export or a token store, and a model's weights, are never replaced so: only
  the command that made them writes there. A page (`.html`) is no part of a run.

What ropewalk writes carries a checksum of its own content, so a file that somebody edited counts as
theirs. A place is checked before the work begins: a long search must not end in a refusal.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported

STANDARD_OUTPUT = Path("-")
RUN_FILE, EXPORT_FILE = "run.json", "ropewalk.manifest.json"
RUN_FORMAT = "ropewalk-run-1"
"""A folder whose `RUN_FILE` holds this is a run or a token store: others have a run.json, too. One
with the second file is an export."""
_HEAD = 2**16
_WEIGHTS = (".gguf", ".safetensors")
TEMPORARY = ".ropewalk-part"
"""The ending of a file that is still being written."""

_MARK = b"ropewalk-sha256:"
_DIGITS = 64
UNSIGNED = f"{_MARK.decode()}{'0' * _DIGITS}"
"""Put this into a text, where its format allows one, and `signed` fills in the checksum."""
_MOST_BYTES = 64 * 2**20  # of a file of ours
_PNG = b"\x89PNG"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""The system's errors for a disk or device that takes no more: no mistake of the user."""
_KINDS = {
    stat.S_ISLNK: "a link",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
}


def check_file(
    path: Path, *, key: str = "output", sources: Iterable[Path] = (), overwrite: bool = False
) -> None:
    """Refuse a file that must not be written; nothing is written yet."""
    if path == STANDARD_OUTPUT:
        raise InvalidValue(key, "-", "cannot be printed", "give the name of a file")
    check_place(path, key=key, sources=sources)
    if path.is_dir():
        raise InvalidValue(key, str(path), "is a folder", "give the name of a file in it")
    if not path.parent.is_dir():
        raise InvalidValue(
            key, str(path), f"the folder {path.parent} does not exist", "create it, or check it"
        )
    check_no_part(path, key)
    if path.is_file() and path.suffix.lower() in _WEIGHTS:
        raise InvalidValue(
            key, str(path), "is a model's weights, which are not replaced", "choose another name"
        )
    if path.exists() and not overwrite and not is_ours(path):
        raise InvalidValue(
            key,
            str(path),
            "exists, and ropewalk did not write it, or it has been edited since",
            "allow it to be replaced (`overwrite`), or choose another name",
        )


def check_place(path: Path, *, key: str = "output", sources: Iterable[Path] = ()) -> None:
    """Refuse what is no regular file or folder, and what belongs to one of the sources."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        mode = 0
    except OSError as error:
        raise cannot_write(path, error) from None
    for is_kind, kind in _KINDS.items():
        if is_kind(mode):
            remedy = "give the path that it leads to" if kind == "a link" else "give another path"
            raise InvalidValue(
                key, str(path), f"is {kind}, and only regular files and folders are written", remedy
            )
    place = path.resolve()
    for source in sources:
        kept = source.resolve()
        if place == kept or place in kept.parents or kept in place.parents:
            holds = place != kept and place in kept.parents
            raise InvalidValue(
                key,
                str(path),
                f"{'holds' if holds else 'is, or lies in,'} the source {kept}, which is never "
                "written to",
                "choose another path",
            )


def check_unicode(path: Path) -> None:
    """Refuse a place that the libraries of weights do not open."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise Unsupported(
            f"{path}: has a name that is not UTF-8, and the libraries that read and write weights "
            "do not open such names; rename it, or give a link to it"
        ) from None


def check_no_part(path: Path, key: str) -> None:
    """Refuse what exists as a part of a run, a token store or an export."""
    if not path.exists() or path.suffix == ".html":
        return
    for folder in path.resolve().parents:
        export = (folder / EXPORT_FILE).is_file()
        if export or _is_run(folder):
            kind = "export" if export else "run or token store"
            raise InvalidValue(
                key,
                str(path),
                f"belongs to the {kind} {folder}, of which nothing is replaced",
                "choose a path outside that folder, or a new name in it",
            )


def _is_run(folder: Path) -> bool:
    file = folder / RUN_FILE
    try:
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            return RUN_FORMAT.encode() in opened.read(_HEAD)
    except OSError:  # it may be one
        return True


def check_room(place: Path, needed: int, what: str) -> None:
    """Refuse a disk with too little room, before any work is lost. `what` needs it."""
    nearest = next(path for path in (place.resolve(), *place.resolve().parents) if path.exists())
    try:
        free = shutil.disk_usage(nearest).free
    except OSError as error:
        raise cannot_write(place, error) from None
    if free < needed:
        raise InputError(
            f"{place}: {what} needs up to {needed / 2**30:.3g} GiB, and its disk has "
            f"{free / 2**30:.3g} GiB free; free some space, or write to another disk"
        )


def signed(content: bytes) -> bytes:
    """The content with its checksum in the place that `UNSIGNED` keeps for it."""
    return _with_digits(content, _checksum(content))


def is_ours(path: Path) -> bool:
    """True if ropewalk wrote this file and nobody has changed it since."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:  # a pipe would be waited for
            return False
        content = path.read_bytes()
    except OSError:
        return False
    return is_signed(content)


def is_signed(content: bytes) -> bool:
    """True if the content has the checksum that `signed` gave it."""
    start = _digits_of(content)
    if start is None:
        return False
    checksum = content[start : start + _DIGITS]
    return checksum == _checksum(_with_digits(content, b"0" * _DIGITS))


def _digits_of(content: bytes) -> int | None:
    """The place of the checksum; None if it is nowhere, or in several places."""
    place = content.find(_MARK)
    if place < 0 or content.find(_MARK, place + 1) >= 0:
        return None
    return place + len(_MARK)


def _checksum(content: bytes) -> bytes:
    import hashlib  # slow, and `--help` signs nothing

    return hashlib.sha256(content).hexdigest().encode()


def _with_digits(content: bytes, digits: bytes) -> bytes:
    start = _digits_of(content)
    if start is None:
        return content
    end = start + _DIGITS
    changed = content[:start] + digits + content[end:]
    if content.startswith(_PNG):  # a text chunk of a PNG ends with its own, shorter checksum
        chunk = content.rfind(b"tEXt", 0, start)
        crc = zlib.crc32(changed[chunk:end]).to_bytes(4, "big")
        changed = changed[:end] + crc + changed[end + 4 :]
    return changed


def cannot_write(path: str | Path, error: OSError) -> RopewalkError:
    """The error for a failed write: a full or broken disk is no mistake of the user."""
    said = f"{path}: cannot be written ({error.strerror or error})"
    if error.errno in FULL:
        return RopewalkError(f"{said}; make room and run the same command again")
    return InputError(f"{said}; check the path")


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Replace a file in one step: a reader sees all of the old content or all of the new."""
    path = Path(path)
    # A path may hold bytes that are no text, which a reader would refuse.
    data = content.encode(errors="replace") if isinstance(content, str) else content
    try:
        # Not with the file's own name, which may be as long as a name can be.
        descriptor, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=".ropewalk-", suffix=TEMPORARY
        )
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
        sync_directory(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from None


def is_left_over(path: Path) -> bool:
    """True for a file that a process was writing when it was killed."""
    is_folder = path.is_dir() and not path.is_symlink()
    return path.name.startswith(".") and path.name.endswith(TEMPORARY) and not is_folder


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    import hashlib  # slow to import, and `--help` needs none

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_at(place: object) -> str:
    """A SHA-256 of a file, or of the configs and weights of a folder: either may be replaced."""
    import hashlib  # as above

    path = Path(str(place))
    folder = (file for end in ("json", "safetensors") for file in path.glob(f"*.{end}"))
    files = (path,) if path.is_file() else sorted(folder)
    return hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def locks() -> ModuleType:
    """The module of file locks, by which a run or an export knows that it is alone."""
    try:
        import fcntl
    except ImportError:
        raise Unsupported(
            "runs and exports need POSIX file locks, which this system does not have; use Linux, "
            "macOS, or Windows Subsystem for Linux (WSL)"
        ) from None
    return fcntl


def sync_directory(directory: Path) -> None:
    """The rename itself is on disk only when the directory is."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except PermissionError:  # Windows opens no folder
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
