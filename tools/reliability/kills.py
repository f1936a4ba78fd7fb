"""SIGKILL at a random moment; the same call again must end as if nothing had been."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tools.reliability.calls import content, difference
from tools.reliability.row import CannotRun, Case, Row
from tools.reliability.subjects import SUBJECTS, Stage, Subject

TRIES = 12
"""Kills for one case: some come after the end, on a machine that is now less busy."""


def kill(made: Stage, subject: Subject, seed: int) -> str | None:
    """A call that is killed, and called again."""
    whole = made.undisturbed(subject)
    moments = random.Random(f"{subject.name} {seed}")
    folder = made.room / "killed"
    longest = whole.seconds
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        call = made.start(subject, folder)
        time.sleep(moments.uniform(0, longest))
        call.send(signal.SIGKILL)
        ended = call.wait()
        if ended.status == -signal.SIGKILL:
            break
        longest *= 0.7
    else:
        raise CannotRun("it ended each time before it could be killed")
    replaces = subject.name == "export" and (folder / "run").exists()
    again = made.run(subject, folder, *["--overwrite"] * replaces)
    if again.problem or again.status != whole.status:
        return again.problem or f"called again, it ends with {again.status}: {again.last}"
    return difference(content(folder), whole.content) or _left_over(folder)


def _left_over(folder: Path) -> str | None:
    """A hidden file that nobody will remove."""
    hidden = sorted(path.name for path in folder.rglob(".*"))
    return f"{hidden[0]} is left over" if hidden else None


def _cases_of(name: str, planned: int) -> Callable[[Path, int], Iterator[Case]]:
    def cases(room: Path, seed: int) -> Iterator[Case]:
        made = Stage(room)
        for number in range(planned):
            own = partial(kill, made, SUBJECTS[name], seed * 10_000 + number)
            yield Case(f"{name}, kill {number}", own)

    return cases


PLANNED = {"search": 60, "evaluate": 30, "train": 20, "data": 20, "extend": 20, "export": 20}
PLANNED |= {"driver": 60, "store": 20, "staging": 20}
MENDED = {
    "staging": (
        "An export that was killed in its first or its last moment left a hidden folder that "
        "nothing removed.",
    )
}
ROWS = tuple(
    Row(
        f"killed-{name}",
        f"SIGKILL of {SUBJECTS[name].told} at a random moment",
        "called again, it ends with the same bytes, and nothing is left over",
        planned,
        _cases_of(name, planned),
        together=0,
        sample=2 * SUBJECTS[name].light,
        mended=MENDED.get(name, ()),
    )
    for name, planned in PLANNED.items()
)
