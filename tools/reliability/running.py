"""Runs the cases of a row, each in a forked child if the row says so, and counts the outcomes."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from benchmarks.machine import machine
from tools.reliability.row import FOLDER, CannotRun, Case, Row

COUNTS = FOLDER / "counts"
CANNOT = "cannot run: "
_SHOWN_EVERY = 5.0
_PATIENCE = 10
"""Seconds by the clock for each that a case may take: a machine may be busy with other work."""
ELSEWHERE: list[Callable[[], float]] = []
"""The seconds of processes that are still running, and of those that these have started."""


@dataclass
class Counts:
    """What is kept of a row."""

    done: int = 0
    """Cases that ran, as expected or not."""
    finds: dict[str, int] = field(default_factory=dict)
    not_run: dict[str, int] = field(default_factory=dict)
    """Cases that this machine cannot run, by what is missing."""
    cpu_seconds: float = 0.0
    seed: int = 0
    machine: str = ""
    date: str = ""
    commit: str = ""

    @property
    def begun(self) -> int:
        return self.done + sum(self.not_run.values())


def recorded(row: str, folder: Path = COUNTS) -> Counts:
    path = folder / f"{row}.json"
    return Counts(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Counts()


def keep(row: str, counts: Counts, folder: Path = COUNTS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(counts), indent=1, ensure_ascii=False) + "\n"
    (folder / f"{row}.json").write_text(text, encoding="utf-8")


def run_row(
    row: Row, count: int, seed: int, minutes: float, folder: Path = COUNTS, *, again: bool = False
) -> Counts:
    """Cases up to `count`, after those kept for this seed; outcomes are kept as they come."""
    counts = Counts() if again else recorded(row.name, folder)
    if counts.seed != seed or not counts.begun:
        counts = Counts(seed=seed)
    counts.machine, counts.commit = str(machine()["cpu"]), _commit()
    counts.date = f"{datetime.now(UTC):%Y-%m-%d}"
    ends = time.monotonic() + 60 * minutes
    shown, before = 0.0, counts.cpu_seconds
    began = _cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="ropewalk-faults-") as room:
        cases = islice(row.cases(Path(room), seed), counts.begun, max(count, counts.begun))
        while (batch := list(islice(cases, row.together or 1))) and time.monotonic() < ends:
            for case, said in zip(batch, _outcomes(row, batch), strict=True):
                _count(counts, case, said and said.replace(room, "ROOM"))
                counts.cpu_seconds = round(before + _cpu_seconds() - began, 1)
                if time.monotonic() > shown + _SHOWN_EVERY or said:
                    shown = time.monotonic()
                    keep(row.name, counts, folder)
                    _show(row, counts, count, said and f"{case.name}: {said}")
    counts.cpu_seconds = round(before + _cpu_seconds() - began, 1)  # with those of the last child
    keep(row.name, counts, folder)
    _show(row, counts, count, None)
    return counts


def run_finds(row: Row, folder: Path = COUNTS) -> Counts:
    """The cases that were not as expected once more, alone, as after a mend."""
    counts = recorded(row.name, folder)
    with tempfile.TemporaryDirectory(prefix="ropewalk-faults-") as room:
        for case in islice(row.cases(Path(room), counts.seed), counts.begun):
            for find in [find for find in counts.finds if find.startswith(f"{case.name}: ")]:
                [said] = _outcomes(row, [case])
                counts.done -= counts.finds.pop(find)
                _count(counts, case, said and said.replace(room, "ROOM"))
                _show(row, counts, counts.begun, said and f"{case.name}: {said}")
    counts.commit = _commit()
    keep(row.name, counts, folder)
    return counts


def _count(counts: Counts, case: Case, said: str | None) -> None:
    if said and said.startswith(CANNOT):
        what = said.removeprefix(CANNOT)
        counts.not_run[what] = counts.not_run.get(what, 0) + 1
        return
    counts.done += 1
    if said:
        key = f"{case.name}: {said}"
        counts.finds[key] = counts.finds.get(key, 0) + 1


def _show(row: Row, counts: Counts, count: int, line: str | None) -> None:
    if line:
        print(f"\r{row.name}: {line}", file=sys.stderr)
    wrong = sum(counts.finds.values())
    print(
        f"\r{row.name} {counts.begun}/{count}, {wrong} finds", end="", file=sys.stderr, flush=True
    )


def outcome(run: Callable[[], str | None]) -> str | None:
    """What a case says; an exception of its own is a find too, since nothing may be lost."""
    try:
        said = run()
        return said and " ".join(said.split())[:2_000]
    except CannotRun as error:
        return f"{CANNOT}{error}"
    except Exception as error:
        [*_, last] = traceback.extract_tb(error.__traceback__)
        where = f"{Path(last.filename).name}:{last.lineno}"
        return f"{type(error).__name__} at {where}: {' '.join(str(error).split())[:300]}"


def _outcomes(row: Row, cases: Sequence[Case]) -> Iterator[str | None]:
    if row.together:
        return in_children(cases, row.seconds)
    return (outcome(case.run) for case in cases)


def in_children(cases: Sequence[Case], seconds: float) -> Iterator[str | None]:
    """What each case says. All run in one forked child; if that ends, or is ended because one
    case takes too long, another does those that are left."""
    waiting = list(cases)
    while waiting:
        child, lines = _forked(waiting)
        over = True
        try:
            while waiting:
                over = bool(select.select([lines], [], [], _PATIENCE * seconds)[0])
                if not over or not (line := lines.readline()):
                    break
                waiting.pop(0)
                yield json.loads(line)
        finally:
            lines.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # and whatever it has started
            _, status = os.waitpid(child, 0)
        if waiting:
            waiting.pop(0)
            ended = f"its process ended with {os.waitstatus_to_exitcode(status)}"
            yield ended if over else f"not over after {_PATIENCE * seconds:g} s by the clock"


def _forked(cases: Sequence[Case]) -> tuple[int, BinaryIO]:
    """A child that runs the cases, and where it writes a line for each."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(read)
        for case in cases:
            os.write(write, json.dumps(outcome(case.run)).encode() + b"\n")
        os._exit(0)
    os.close(write)
    return child, os.fdopen(read, "rb", buffering=0)


def _cpu_seconds() -> float:
    own, ended = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    theirs = sum(seconds() for seconds in ELSEWHERE)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + theirs


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, cwd=FOLDER, capture_output=True, text=True).stdout.strip()
