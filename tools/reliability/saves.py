"""Every change of a file that a save makes: killed there, or told that it failed.

A save is disturbed at its n-th change (interposed.c) for every n; then it is called again. A run
is the old or the new one at any moment, so the second call ends with the bytes of an undisturbed
one.
"""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tools.reliability.calls import Ended, Interposed, check_interposed, content, difference
from tools.reliability.row import Case, Row
from tools.reliability.subjects import SUBJECTS, Stage, Subject, stage

_HERE = "tools.reliability.saves:"
_FEWER = "evaluate MODEL --corpus TEXTS --tasks kv --lengths 128 --samples 1 --device cpu --run run"
SAVES = (
    Subject("a run directory", f"{_HERE}save_run run"),
    Subject("a checkpoint", f"{_HERE}save_checkpoint run"),
    SUBJECTS["plan"],
    Subject("data", SUBJECTS["data"].line, {"ropewalk.data.store.SHARD": 16_000}),
    Subject("evaluate", _FEWER),
    SUBJECTS["export"],
)
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


def save_run(run: str) -> int:
    """A run directory with a journal, a sealed result and a file; in the process of a call."""
    from ropewalk.errors import RopewalkError
    from ropewalk.run_directory import RECORDS, RESULTS, RunDirectory

    try:
        with RunDirectory(run, "trial", {"seed": 0}) as directory:
            journal = directory.journal(RECORDS)
            for number in range(len(journal.records), 4):
                journal.append([{"number": number, "text": "a record " * 9}])
            directory.keep(RESULTS, {"sum": sum(int(str(r["number"])) for r in journal.records)})
            directory.write("page.html", "a page\n" * 400)
    except RopewalkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def save_checkpoint(run: str) -> int:
    """A checkpoint in the place of one that is there; in the process of a call."""
    import torch

    from ropewalk.errors import RopewalkError
    from ropewalk.training import checkpoint
    from tests.training import tiny

    folder = Path(run) / "checkpoint-1"
    try:
        checkpoint.remove_leftovers(Path(run))
        torch.manual_seed(0)
        if folder.exists():
            checkpoint.check(folder)
        model = tiny.build(hidden_size=16, intermediate_size=16, head_dim=4)
        optimizer = torch.optim.AdamW(model.parameters())
        checkpoint.save(folder, model, optimizer, {"step": 1}, {"trainer_state.json": {"step": 1}})
    except RopewalkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def prepare(made: Stage, save: Subject, folder: Path) -> None:
    """What is there before: an older file, an older checkpoint, or nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if save.name == "a checkpoint":
        shutil.copytree(made.undisturbed(save).folder, folder, dirs_exist_ok=True)


def disturbed(made: Stage, save: Subject, number: int, own: Disturbance) -> str | None:
    """A save that is disturbed once, and called again."""
    folder, words = made.room / "disturbed", made.words(save)
    prepare(made, save, folder)
    expected = made.undisturbed(save).content
    interposed = Interposed(number, own.how, own.error)
    first = made.calls.run(words, folder, changed=save.changed, interposed=interposed)
    if (problem := _problem(first, own)) is not None:
        return problem
    if first.status == 0 and (changed := difference(_shown(folder), expected)):
        return f"ended well, but {changed}"
    again = made.calls.run(_again(save, words), folder, changed=save.changed)
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


def _again(save: Subject, words: Sequence[str]) -> list[str]:
    return [*words, "--overwrite"] if save.name == "export" else list(words)


def _shown(folder: Path) -> dict[str, bytes]:
    """All but what is hidden, as temporary files are."""
    hidden = (Path(name) for name in content(folder))
    there = {str(name) for name in hidden if not any(part[0] == "." for part in name.parts)}
    return {name: held for name, held in content(folder).items() if name in there}


def _cases_of(disturbances: Sequence[Disturbance], room: Path, seed: int) -> Iterator[Case]:
    check_interposed()
    made = stage(room)
    for save in SAVES:
        changes = _changes(made, save)
        for own in disturbances:
            for number, kind in enumerate(changes, start=1):
                if not own.changes or kind in own.changes:
                    name = f"{save.name}: {own.name} change {number} ({kind})"
                    yield Case(name, partial(disturbed, made, save, number, own))


def _changes(made: Stage, save: Subject) -> str:
    """The changes of an undisturbed save."""
    folder = made.room / "counted"
    prepare(made, save, folder)
    counting = Interposed(0, "count")
    return made.calls.run(
        made.words(save), folder, changed=save.changed, interposed=counting
    ).changes


ROWS = (
    Row(
        "killed-in-a-save",
        "SIGKILL before every write, sync, rename, link and removal of a save, and within writes",
        "the old or the new state; the next call ends with the bytes of an undisturbed one",
        300,
        partial(_cases_of, KILLS),
        alone=False,
    ),
    Row(
        "io-errors",
        "EIO, a full disk, EINTR or a short write at every change of a file, one at a time",
        "a clear error or no effect; the next call ends with the bytes of an undisturbed one",
        600,
        partial(_cases_of, ERRORS),
        alone=False,
    ),
)
