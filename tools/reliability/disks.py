"""Disks that are full, and folders that are read-only: an error says so, and the call goes on."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tools.reliability.calls import Ended, content, difference
from tools.reliability.row import CannotRun, Case, Row
from tools.reliability.subjects import SUBJECTS, Stage, Subject

NAMES = (
    *(2 * ("driver", "store", "run-directory", "staging", "plan")),
    *(4 * ("evaluate", "data")),
    *("train", "search"),
)
ROOM = 64 * 2**20
"""Bytes of a disk with enough room."""
PAGE = 4096
SAID = 600
"""Bytes that a call may say: its output is a file, too."""


def large_file(made: Stage, subject: Subject, seed: int) -> str | None:
    """A limit on the size of a file (RLIMIT_FSIZE), which is reached within a write."""
    whole = made.undisturbed(subject)
    chosen = random.Random(f"{subject.name} {seed}")
    sizes = sorted({len(held) for held in whole.content.values() if held})
    limit = SAID + chosen.randrange(max(2, chosen.choice(sizes)))
    folder = _empty(made.room / "limited")
    ended = made.run(subject, folder, largest_file=limit)
    return _refused(ended, whole.status) or _goes_on(made, subject, folder)


def full_disk(made: Stage, subject: Subject, seed: int) -> str | None:
    """A disk that is full after some pages."""
    whole = made.undisturbed(subject)
    pages = sum(-(-len(held) // PAGE) + 1 for held in whole.content.values())
    chosen = random.Random(f"{subject.name} {seed}").randint(1, max(2, pages - 1))
    folder = _empty(made.room / "full")
    with _disk(folder, chosen * PAGE):
        ended = made.run(subject, folder)
        if problem := _refused(ended, whole.status):
            return f"{problem} (a disk of {chosen} pages)"
        _remount(folder, f"size={ROOM}")
        return _goes_on(made, subject, folder)


def read_only(made: Stage, subject: Subject, seed: int) -> str | None:
    """A disk that becomes read-only, with nothing on it or a run that is half done."""
    whole, folder = made.undisturbed(subject), _empty(made.room / "read-only")
    with _disk(folder, ROOM):
        if seed % 2:  # some files of a run that is done, as if it had not come further
            shutil.copytree(whole.folder, folder, dirs_exist_ok=True)
            for result in subject.results:
                (folder / "run" / result).unlink(missing_ok=True)
        before = content(folder, ())
        _remount(folder, "ro")
        ended = made.run(subject, folder)
        if ended.problem or ended.status not in (1, 2):
            return ended.problem or f"ends with {ended.status}: {ended.last}"
        if content(folder, ()) != before:
            return "a read-only disk has changed"
        _remount(folder, "rw")
        return _goes_on(made, subject, folder)


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _refused(ended: Ended, status: int) -> str | None:
    if ended.problem or ended.status not in (1, 2, status):
        return ended.problem or f"ends with {ended.status}: {ended.last}"
    told = ended.errors + ended.output
    if ended.status not in (0, status) and not any(
        word in told for word in ("make room", "No space left", "File too large", "free some space")
    ):
        return f"ends with {ended.status} and does not say why: {ended.last}"
    return None


def _goes_on(made: Stage, subject: Subject, folder: Path) -> str | None:
    """The same call, with room."""
    whole = made.undisturbed(subject)
    replaces = subject.name == "export" and (folder / "run").exists()
    again = made.run(subject, folder, *["--overwrite"] * replaces)
    if again.problem or again.status != whole.status:
        return again.problem or f"with room, it ends with {again.status}: {again.last}"
    return difference(content(folder), whole.content)


@contextmanager
def _disk(folder: Path, size: int) -> Iterator[None]:
    """A file system in memory, of this size."""
    if os.geteuid() or shutil.which("mount") is None:
        raise CannotRun("only root may mount a small disk")
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        raise CannotRun("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def cases(room: Path, seed: int) -> Iterator[Case]:
    made = Stage(room)
    for number, name in enumerate(NAMES):
        own = SUBJECTS[name]
        for kind, disturbed in (
            ("a limit on files", large_file),
            ("a full disk", full_disk),
            ("a read-only disk", read_only),
        ):
            told = f"{name} on {kind}, {number}"
            yield Case(told, partial(disturbed, made, own, seed * 1000 + number))


ROWS = (
    Row(
        "full-disk",
        "a limit on the size of files, a disk of a few pages, a disk that is read-only",
        "an error says what is missing; with room, the same call ends with the same bytes",
        60,
        cases,
        together=0,
        sample=6,
    ),
)
