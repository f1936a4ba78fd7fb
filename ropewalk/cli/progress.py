"""A bar on standard error for what takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ropewalk.progress import Progress, Status

PATIENCE = 1.5


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Gives a function to call with each status; nothing is shown of quick work, or to a file."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(file=sys.stderr)
    began = time.monotonic()
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("", total=1.0, detail="")
    shown, stage = False, ""

    def show(status: Status) -> None:
        nonlocal shown, stage
        if not shown and console.is_terminal and time.monotonic() - began > PATIENCE:
            bar.start()
            shown = True
        if status.stage != stage:  # the time left is that of the stage
            stage = status.stage
            bar.reset(task, description=stage, detail="")
        bar.update(task, completed=status.done, detail=status.detail)

    try:
        yield show
    finally:
        if shown:
            bar.stop()
