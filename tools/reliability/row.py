"""A row of the table: a kind of fault, what is expected of ropewalk then, and the cases of it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class CannotRun(Exception):
    """This machine lacks something that the case needs; the message says what."""


class Case(NamedTuple):
    """One fault: `run` returns None if all is as expected, or a line that says what went wrong."""

    name: str
    run: Callable[[], str | None]


@dataclass(frozen=True)
class Row:
    """Cases of one kind; `cases` gets an empty folder and a seed, and the same seed gives the same
    cases, so that a run goes on after those that are done. What takes long belongs into `run`."""

    name: str
    """A word or two, without spaces, as `python -m tools.reliability` takes it."""
    how: str
    expected: str
    planned: int
    cases: Callable[[Path, int], Iterator[Case]]
    seconds: float = 120
    """A case runs in a forked child, which is ended if one takes ten times as long by the clock."""
    together: int = 1
    """Cases for which one child serves, where forking would take longer than they do; 0 for none:
    those that start and end processes themselves."""
    sample: int = 0
    """Cases that the fast suite runs: a few seconds at most."""
    mended: tuple[str, ...] = ()
    """Faults of ropewalk that these cases found, a sentence each; each has a regression test."""


def all_rows() -> dict[str, Row]:
    """The rows of every file here that offers `ROWS`, by name."""
    found: dict[str, Row] = {}
    for module in sorted(pkgutil.iter_modules([str(FOLDER)]), key=lambda each: each.name):
        if module.name.startswith("__") or "ROWS" not in _text(module.name):
            continue
        rows: tuple[Row, ...] = getattr(
            importlib.import_module(f"tools.reliability.{module.name}"), "ROWS", ()
        )
        found |= {row.name: row for row in rows}
    return found


def _text(name: str) -> str:
    path = FOLDER / f"{name}.py"
    return path.read_text(encoding="utf-8") if path.exists() and name != "row" else ""
