"""Progress of long computations: every verb reports it, and its caller may show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class Status(NamedTuple):
    """The progress of a stage."""

    stage: str
    done: float
    """The share of the stage, from 0 to 1."""
    detail: str = ""
    """A detail worth knowing now, such as the best score so far."""


Progress: TypeAlias = Callable[[Status], None]
Notice: TypeAlias = Callable[[str], None]
"""Takes what the user should know and is no reason to stop."""


def log_notice(text: str) -> None:
    """Log the notice as a warning."""
    import logging  # slow, and commands have a way of their own

    logging.getLogger("ropewalk").warning(text)


def silent(status: Status) -> None:
    """Show nothing."""


def shown(status: Status) -> None:
    """Stands for a bar in a terminal or a notebook, and for nothing elsewhere: a verb's default."""


def unheard(text: str) -> None:
    """A notice that nobody needs: another process says it, or it was said before."""


def share(
    progress: Progress, name: str, begin: float = 0.0, size: float = 1.0, detail: str = ""
) -> Callable[[float], None]:
    """For code that knows only its share: the progress of one stage, or of a part of one."""
    return lambda done: progress(Status(name, begin + size * done, detail))
