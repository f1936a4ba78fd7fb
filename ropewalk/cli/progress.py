"""A bar on standard error for what takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 1.5


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Gives a function to call with the share done; nothing is shown of quick work or to a file."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    began = time.monotonic()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(label, total=1.0)
    shown = False

    def advance(done: float) -> None:
        nonlocal shown
        if not shown and console.is_terminal and time.monotonic() - began > PATIENCE:
            bar.start()
            shown = True
        bar.update(task, completed=done)

    try:
        yield advance
    finally:
        if shown:
            bar.stop()
