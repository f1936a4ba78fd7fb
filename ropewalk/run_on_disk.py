"""A run directory, read: its configuration, its records, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.errors import InputError, InvalidValue
from ropewalk.records import EvalRecord
from ropewalk.run_directory import (
    CONFIGURATION,
    EVENTS,
    RECORDS,
    read_configuration,
    read_journal,
    read_versions,
)
from ropewalk.untrusted import read_json
from ropewalk.values import Result

R = TypeVar("R", bound=Result)
MAX_BYTES = 64 * 2**20


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
        return cls(path, command, configuration, read_versions(path))

    def result(self, name: str, kind: type[R]) -> R | None:
        """The result that a command left in one of its files; None if there is none yet."""
        file = self.path / name
        if not file.exists():
            return None
        return kind.from_json(read_json(file, max_bytes=MAX_BYTES), f"{file}: ")

    @cached_property
    def records(self) -> list[EvalRecord]:
        """The scored samples so far."""
        return [
            EvalRecord.from_json(line, f"{self.path / RECORDS}: record {i}")
            for i, line in enumerate(self.lines(RECORDS), start=1)
        ]

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
        told = next((line for line in lines if isinstance(line, str)), None)
        in_python = f"rw.{self.command}(…) in Python, or a version that recorded no command"
        return str(told or in_python)

    def notes(self) -> tuple[str, ...]:
        """The notes for the end of a page."""
        used = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"Run directory: {self.path}", f"Versions: {used}"

    def asked(self) -> tuple[str, ...]:
        """The configuration, a line each."""
        return tuple(
            f"{key}: {value}"
            for key, value in self.configuration.items()
            if isinstance(value, str | int | float)
        )

    def facts(self) -> tuple[str, ...]:
        """The date of its beginning, its working time, and its machine."""
        events = self.lines(EVENTS)
        times = [_time(event["time"], self.path) for event in events if "time" in event]
        if not times:
            return ()
        seconds, began = 0.0, times[0]
        for event, now in zip(events, times, strict=False):
            if event.get("event") in ("started", "resumed"):
                began = now
            elif event.get("event") in ("finished", "stopped"):
                seconds += (now - began).total_seconds()
        took = "" if not seconds else f"{seconds / 60:.1f} min" if seconds < 5400 else ""
        took = took or (f"{seconds / 3600:.1f} h" if seconds else "")
        machine = next((str(e["machine"]) for e in reversed(events) if "machine" in e), "")
        return tuple(filter(None, (f"{times[0]:%d %B %Y}", took, machine)))


def _time(value: object, run: Path) -> datetime:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidValue(
            f"{run / EVENTS}: time", value, "is not a time with its zone", "restore the file"
        )
    return found
