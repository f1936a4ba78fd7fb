"""The place that an export is written to: which it may be, and how it appears there whole.

What is written stands under a temporary name beside its final one until the block that writes it
ends without an error. So whoever finds an export under its name finds a whole one. An export is
replaced by an export, never a folder that holds anything else: a slip of the keyboard must not
delete somebody's notes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ropewalk.errors import InputError, InvalidValue
from ropewalk.exporting.manifest import MANIFEST, Manifest
from ropewalk.outputs import (
    STANDARD_OUTPUT,
    TEMPORARY,
    cannot_write,
    check_place,
    check_room,
    check_unicode,
    is_left_over,
    locks,
)


def check_export_place(
    out: Path,
    *,
    sources: Iterable[Path] = (),
    overwrite: bool = False,
    is_folder: bool | None = None,
) -> None:
    """Refuse a place before the work begins; `is_folder` states what it will be, if known."""
    if out == STANDARD_OUTPUT:
        raise InvalidValue("out", "-", "cannot be printed", "give the path to write to")
    check_place(out, key="out", sources=sources)
    check_unicode(out)
    if not os.path.lexists(out):
        return
    if is_folder is not None and out.is_dir() != is_folder:
        kinds = ("a folder", "a file") if is_folder else ("a file", "a folder")
        raise InvalidValue(
            "out",
            str(out),
            f"is {kinds[1]}, and this runtime's export is {kinds[0]}",
            "choose another path",
        )
    if out.is_dir() and (foreign := _foreign(out)):
        raise InputError(
            f"{out}: holds {foreign}, which no export of ropewalk put there, so it is not "
            "replaced; remove the folder yourself, or choose another path"
        )
    if not overwrite:
        raise InputError(f"{out}: exists already; allow it to be replaced (`overwrite`)")


def _foreign(folder: Path) -> str | None:
    """Something in a folder that its manifest does not list; None if an export wrote all of it."""
    manifest = Manifest.read(folder) if (folder / MANIFEST).exists() else Manifest({})
    names = manifest.unlisted(folder)
    return next((name for name in names if not is_left_over(folder / name)), None)


_LOCK, _REPLACED = "lock", "replaced"
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)
# What file systems without hard links say of one: there, only a check stands before the rename.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
# Room for what is small: tokenizer, config, index.
SPARE_BYTES = 32 * 2**20


@contextmanager
def staged(
    out: str | Path, *, needs_bytes: int, overwrite: bool = False, sources: tuple[Path, ...] = ()
) -> Iterator[Path]:
    """A temporary path next to `out`, for a file or folder that is renamed to it at the end.

    Refused before anything is written: what the policy of outputs.py refuses; an `out` that exists,
    without `overwrite`; a disk with too little room. The place is checked once more at the end, for
    somebody may have put something there meanwhile. After an error nothing is left. What a killed
    process left is removed by the next export to the same place: a lock tells who is alive.
    """
    out = Path(os.path.abspath(out))
    _remove_dead_rooms(out)
    check_export_place(out, sources=sources, overwrite=overwrite)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        check_room(out, needs_bytes + SPARE_BYTES, "an export")
        room, lock = _new_room(out)
    except OSError as error:
        raise cannot_write(out, error) from None
    try:
        yield room / out.name
        if overwrite:
            check_export_place(out, sources=sources, overwrite=True)
            _replace(room, out)
        else:
            _move_into_place(room, out, sources)
    except OSError as error:
        # What is read was opened before: what fails now is the writing.
        raise cannot_write(out, error) from None
    finally:
        try:
            _remove(room)
        finally:
            os.close(lock)


def _new_room(out: Path) -> tuple[Path, int]:
    """A room and its lock, held."""
    fcntl = locks()
    while True:
        room = Path(tempfile.mkdtemp(prefix=_prefix(out), suffix=TEMPORARY, dir=out.parent))
        with suppress(FileNotFoundError):  # another export took it for that of a dead process
            lock = os.open(room / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (room / _LOCK).exists():
                return room, lock
            os.close(lock)


def _remove(room: Path) -> None:
    """Remove a room, its lock last: one that holds things without a lock is never removed."""
    with suppress(OSError):
        for path in room.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                path.unlink()
        (room / _LOCK).unlink(missing_ok=True)
        room.rmdir()


def _remove_dead_rooms(out: Path) -> None:
    """Remove the leftovers of processes that were killed while they wrote to the same place."""
    fcntl = locks()
    for room in out.parent.glob(f"{_prefix(out)}*{TEMPORARY}"):
        if room.is_symlink():  # never ours, and what it leads to is not to be removed
            continue
        try:
            lock = os.open(room / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # not ours, unless it is empty: its process had no time to lock it
            with suppress(OSError):
                room.rmdir()
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # It may have been killed after it moved the old one away, and before the new one came.
            if os.path.lexists(room / _REPLACED) and not os.path.lexists(out):
                os.rename(room / _REPLACED, out)
            _remove(room)
        except BlockingIOError:  # its process is alive
            continue
        finally:
            os.close(lock)


def _prefix(out: Path) -> str:
    """The prefix of an export's temporary folders: a name may be as long as it can be."""
    return f".ropewalk-{hashlib.sha256(os.fsencode(out.name)).hexdigest()[:12]}-"


def _move_into_place(room: Path, out: Path, sources: tuple[Path, ...]) -> None:
    """Move what is written to an empty place, and refuse if something appeared there."""
    written = room / out.name
    check_export_place(out, sources=sources)
    try:
        if written.is_dir():
            os.rename(written, out)  # refused by the system where it is a file or a filled folder
            return
        try:
            os.link(written, out)  # refused by the system where anything is; goes with the room
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.rename(written, out)
    except OSError as error:
        if error.errno in _TAKEN:
            check_export_place(out, sources=sources)
        raise


def _replace(room: Path, out: Path) -> None:
    written = room / out.name
    replaced = os.path.lexists(out)
    if replaced:
        os.rename(out, room / _REPLACED)  # deleted with the room
    try:
        os.rename(written, out)
    except OSError:
        if replaced:
            os.rename(room / _REPLACED, out)
        raise
