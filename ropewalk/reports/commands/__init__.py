"""Run directories to report pages, one command a file: `page(run) -> Page`. No torch.

A command whose runs can be shown is a module here with that name.
"""

from __future__ import annotations

import pkgutil
import shlex
from importlib import import_module
from pathlib import Path

from ropewalk.blocks import Cell, Page, Section, Table
from ropewalk.errors import InputError
from ropewalk.run_directory import CONFIGURATION, read_arguments
from ropewalk.run_on_disk import RunOnDisk


def commands() -> tuple[str, ...]:
    """The commands whose runs can be shown."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def again(run: RunOnDisk, *changes: str) -> str:
    """The command that repeats a run in another directory, with these changes."""
    command = ("ropewalk", run.command, "--config", str(run.path / CONFIGURATION))
    return shlex.join((*command, *changes, "--run", f"{run.path}-more"))


def model_of(run: RunOnDisk) -> str:
    """The model as the command named it, if it did."""
    return argument(run, "model") or "path/to/model"


def argument(run: RunOnDisk, name: str) -> str:
    """An argument of the command, if it is a text; else empty."""
    try:
        value = read_arguments(run.path, run.command).get(name)
    except InputError:  # of a version that recorded no arguments
        value = None
    return value if isinstance(value, str) else ""


def index_of(folder: Path) -> Page:
    """A page that lists all runs below a folder, the newest first, each with its verdict."""
    rows = []
    for file in sorted(filter(Path.is_file, folder.rglob(CONFIGURATION))):
        place = file.parent.relative_to(folder)
        page = (file.parent / "report.html").is_file()
        link = str(place / "report.html") if page else ""
        try:
            run = RunOnDisk.read(file.parent)
            began, took = run.times()
            verdict, command, newest = page_of(run).told, run.command, file.stat().st_mtime
        except InputError as error:
            verdict, command, newest, began, took = str(error), "", 0.0, "", ""
        cells = Cell(str(place), None, link), Cell(command), Cell(began, newest), Cell(took)
        rows.append((newest, (*cells, Cell(verdict))))
    if not rows:
        raise InputError(
            f"{folder}: is not a run directory and holds none; give one, or a folder of them"
        )
    rows.sort(key=lambda row: -row[0])
    table = Table(
        "", ("run", "command", "begun", "took", "verdict"), tuple(cells for _, cells in rows)
    )
    return Page(f"Runs in {folder.name}", f"{len(rows)} runs.", (), (Section("Runs", (table,)),))


def page_of(run: RunOnDisk) -> Page:
    """The page of a run, finished or not."""
    if run.command not in commands():
        raise InputError(
            f"{run.path}: is a run of {run.command}, which has no report; there are reports for "
            f"{', '.join(commands())}"
        )
    page: Page = import_module(f"{__name__}.{run.command}").page(run)
    return page._replace(
        notes=(*page.notes, *run.notes()),
        facts=(*page.facts, *(f"measured on {machine}" for machine in filter(None, [run.machine]))),
        folded=run.asked(),
    )
