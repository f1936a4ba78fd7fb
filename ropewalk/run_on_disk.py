"""A run directory, read: its configuration, its records, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.errors import InputError
from ropewalk.records import EvalRecord
from ropewalk.run_directory import (
    CONFIGURATION,
    EVENTS,
    RECORDS,
    check_configuration,
    check_kept,
    edited_files,
    read_configuration,
    read_journal,
    read_versions,
    seals_of,
)
from ropewalk.untrusted import read_json
from ropewalk.values import Result

R = TypeVar("R", bound=Result)
MAX_BYTES = 64 * 2**20


def result_in(run: Path, name: str, kind: type[R]) -> R | None:
    """The result that a command left in a file of a run; None if there is none yet."""
    file = run / name
    if not file.exists():
        return None
    value = read_json(file, max_bytes=MAX_BYTES)
    check_kept(file, run)
    return kind.from_json(value, f"{file}: ")


@dataclass(frozen=True)
class RunOnDisk:
    path: Path
    command: str
    configuration: Mapping[str, object]
    versions: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Self:
        if not path.is_dir():
            raise InputError(f"{path}: is not a folder; give a run directory")
        if not (path / CONFIGURATION).is_file():
            if runs := sorted(str(each.parent) for each in path.glob(f"*/{CONFIGURATION}")):
                raise InputError(
                    f"{path}: is a folder of runs; name one of them: {', '.join(runs[:8])}"
                )
            raise InputError(
                f"{path}: is not a run directory (it has no {CONFIGURATION}); give a folder that a "
                "command wrote with --run"
            )
        command, configuration = read_configuration(path)
        run = cls(path, command, configuration, read_versions(path))
        check_configuration(path, run.lines(EVENTS))
        return run

    def result(self, name: str, kind: type[R]) -> R | None:
        """The result that a command left in one of its files; None if there is none yet."""
        return result_in(self.path, name, kind)

    @cached_property
    def records(self) -> list[EvalRecord]:
        """The scored samples so far."""
        return EvalRecord.of_lines(self.lines(RECORDS), str(self.path / RECORDS))

    def lines(self, journal: str) -> list[dict[str, object]]:
        """The lines of a journal so far."""
        file = self.path / journal
        return read_journal(file) if file.exists() else []

    @cached_property
    def plan(self) -> ContextPlan | None:
        file = self.path / PLAN
        return ContextPlan.read(file) if file.exists() else None

    @cached_property
    def made_by(self) -> str:
        """The command line that started the run, if it was one."""
        lines = (event.get("line") for event in self.lines(EVENTS))
        in_python = f"rw.{self.command}(…) in Python, or a version that recorded no command"
        return next((line for line in lines if isinstance(line, str)), in_python)

    @cached_property
    def sealed(self) -> set[str]:
        """The names of the files that it has written under a seal, the removed ones too."""
        return set(seals_of(self.path))

    def notes(self) -> tuple[str, ...]:
        """The notes for the end of a page."""
        used = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        notes = (f"Made by: `{self.made_by}`", f"Run directory: {self.path}", f"Versions: {used}")
        edited = ", ".join(edited_files(self.path))
        return (*notes, f"Edited since the run wrote it: {edited}") if edited else notes

    def asked(self) -> tuple[str, ...]:
        """The configuration, a line each."""
        of_run = self.configuration.items()
        return tuple(f"{k}: {v}" for k, v in of_run if isinstance(v, str | int | float))

    @property
    def machine(self) -> str | None:
        """The machine that worked on it last."""
        machines = (event.get("machine") for event in reversed(self.lines(EVENTS)))
        return next((machine for machine in machines if isinstance(machine, str)), None)

    def times(self) -> tuple[str, str]:
        """The date of its beginning and its working time, as far as they are known.

        Its page has neither, or a run that was killed and went on would not end with the same page.
        """
        timed = [(event, _time(event.get("time"))) for event in self.lines(EVENTS)]
        dated = [(event.get("event"), time) for event, time in timed if time is not None]
        if not dated:
            return "", ""
        seconds, began = 0.0, dated[0][1]
        for kind, now in dated:
            if kind in ("started", "resumed"):
                began = now
            elif kind in ("finished", "stopped"):
                seconds += (now - began).total_seconds()
        took = f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
        return f"{dated[0][1]:%d %B %Y}", took if seconds > 0 else ""


def _time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
