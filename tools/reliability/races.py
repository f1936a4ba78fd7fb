"""Two processes that start the same call on one place at the same time."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tools.reliability.calls import Ended, content, difference
from tools.reliability.row import Case, Row
from tools.reliability.subjects import SUBJECTS, Stage, Subject

LIGHT = ("driver", "store", "run-directory", "staging")
NAMES = 5 * LIGHT + 5 * ("evaluate", "data", "extend", "export")
IN_USE = ("is in use by", "exists already")


def race(made: Stage, subject: Subject, seed: int) -> str | None:
    """One ends as an undisturbed call does; the other too, or is refused by name."""
    whole, folder = made.undisturbed(subject), made.room / "raced"
    shutil.rmtree(folder, ignore_errors=True)
    apart = random.Random(f"{subject.name} {seed}").choice([0.0, 0.0, 0.5 * whole.seconds])
    first = made.start(subject, folder)
    time.sleep(apart)
    second = made.start(subject, folder)
    ends = [first.wait(), second.wait()]
    if problem := next((end.problem for end in ends if end.problem), None):
        return problem
    if not any(end.status == whole.status for end in ends):
        return "neither ends well: " + "; ".join(f"{end.status}: {end.last}" for end in ends)
    if problem := next(filter(None, (_refused(end, whole.status) for end in ends)), None):
        return problem
    return difference(content(folder), whole.content)


def _refused(end: Ended, status: int) -> str | None:
    if end.status == status or any(said in end.errors for said in IN_USE):
        return None
    return f"one ends with {end.status}: {end.last}"


def cases(room: Path, seed: int) -> Iterator[Case]:
    made = Stage(room)
    for number, name in enumerate(NAMES):
        own = partial(race, made, SUBJECTS[name], seed * 1000 + number)
        yield Case(f"two of {name}, {number}", own)


ROWS = (
    Row(
        "two-processes",
        "two processes start the same call on one place, at the same time or one later",
        "one does it; the other is refused by name, or finds it done",
        40,
        cases,
        together=0,
        sample=4,
        mended=(
            "A run that was refused and gave its directory up could remove the lock that another "
            "process had just opened, and a third one could then work beside it.",
        ),
    ),
)
