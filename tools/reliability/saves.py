"""Every change of a file that a save makes: killed there, or told that it failed.

A save is disturbed at its n-th change (interposed.c) for every n; then it is called again. A run
is the old or the new one at any moment, so the second call ends with the bytes of an undisturbed
one.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tools.reliability.calls import Ended, Interposed, check_interposed, content, difference
from tools.reliability.row import Case, Row
from tools.reliability.subjects import SUBJECTS, Stage, Subject

_FEWER = "evaluate MODEL --corpus TEXTS --tasks kv --lengths 128 --samples 1 --device cpu --run run"
NAMES = ("run-directory", "plan", "store", "staging", "checkpoint", "export")
SAVES = (*(SUBJECTS[name] for name in NAMES), Subject("evaluate", _FEWER))
REPLACED = ("staging", "checkpoint")
"""Saves that replace what was saved before."""
INTERRUPTIBLE = "wsto"
"""Changes that the system may interrupt."""


class Disturbance(NamedTuple):
    """A way to disturb a change."""

    name: str
    how: str
    error: int
    changes: str
    """The kinds of changes that it is for; all if empty."""


KILLS = (Disturbance("killed before", "kill", 0, ""), Disturbance("killed in", "torn", 0, "w"))
ERRORS = (
    Disturbance("EIO in", "fail", errno.EIO, ""),
    Disturbance("ENOSPC in", "fail", errno.ENOSPC, "wsom"),
    Disturbance("EINTR in", "fail", errno.EINTR, INTERRUPTIBLE),
    Disturbance("half of the bytes taken by", "short", 0, "w"),
)


def prepare(made: Stage, save: Subject, folder: Path) -> None:
    """Make what is there before: what was saved before, or nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    if save.name in REPLACED:
        shutil.copytree(made.undisturbed(save).folder, folder)


def disturbed(made: Stage, save: Subject, number: int, own: Disturbance) -> str | None:
    """A save that is disturbed once, and called again."""
    folder, expected = made.room / "disturbed", made.undisturbed(save).content
    prepare(made, save, folder)
    first = made.run(save, folder, interposed=Interposed(number, own.how, own.error))
    if (problem := _problem(first, own)) is not None:
        return problem
    # An export does not fail for its card, or a run for its page.
    is_told = any(lack in first.errors for lack in ("no card: ", "no report: "))
    changed = difference(_shown(folder), expected)
    if first.status == 0 and changed and not is_told:
        return f"ended well, but {changed}"
    replaces = save.name == "export" and (folder / "run").exists()
    again = made.run(save, folder, *["--overwrite"] * replaces)
    if again.problem or again.status != 0:
        return again.problem or f"called again, it ends with {again.status}: {again.last}"
    return difference(_shown(folder), expected)


def _problem(first: Ended, own: Disturbance) -> str | None:
    if own.how in ("kill", "torn"):
        return None if first.status in (0, -9) else first.problem or f"ended with {first.status}"
    if first.problem or first.status not in (0, 1, 2):
        return first.problem or f"ended with {first.status}: {first.last}"
    if own.how == "short" and first.status:
        return f"a short write is no error, and it says: {first.last}"
    return None if first.status == 0 or "error:" in first.errors else "ended without a word"


def _shown(folder: Path) -> dict[str, bytes]:
    """All but what is hidden, as temporary files are."""
    hidden = (Path(name) for name in content(folder))
    there = {str(name) for name in hidden if not any(part[0] == "." for part in name.parts)}
    return {name: held for name, held in content(folder).items() if name in there}


def _cases_of(disturbances: Sequence[Disturbance], room: Path, seed: int) -> Iterator[Case]:
    check_interposed()
    made = Stage(room)
    for save in SAVES:
        changes = _changes(made, save)
        for own in disturbances:
            for number, kind in enumerate(changes, start=1):
                if not own.changes or kind in own.changes:
                    name = f"{save.name}: {own.name} change {number} ({kind})"
                    yield Case(name, partial(disturbed, made, save, number, own))


def _changes(made: Stage, save: Subject) -> str:
    """The changes of an undisturbed save."""
    prepare(made, save, made.room / "counted")
    return made.run(save, made.room / "counted", interposed=Interposed(0, "count")).changes


ROWS = (
    Row(
        "killed-in-a-save",
        "SIGKILL before every write, sync, rename, link and removal of a save, and within writes",
        "the old or the new state; the next call ends with the bytes of an undisturbed one",
        320,
        partial(_cases_of, KILLS),
        together=0,
        sample=3,
        mended=(
            "An export that was killed while its card was written could not be replaced, since the "
            "half of the card was taken for a stranger's file.",
        ),
    ),
    Row(
        "io-errors",
        "EIO, a full disk, EINTR or a short write at every change of a file, one at a time",
        "a clear error or no effect; the next call ends with the bytes of an undisturbed one",
        700,
        partial(_cases_of, ERRORS),
        together=0,
        sample=3,
    ),
)
