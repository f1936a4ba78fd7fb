"""A bar on standard error for what takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ropewalk.progress import Progress, Status

PATIENCE = 1.5


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Gives a function to call with each status; nothing is shown of quick work, or to a file."""
    began = time.monotonic()
    with ExitStack() as stack:
        drawn: Progress | None = None

        def show(status: Status) -> None:
            nonlocal drawn
            if drawn is None and time.monotonic() - began > PATIENCE:
                drawn = stack.enter_context(_bar())
            if drawn is not None:
                drawn(status)

        yield show


@contextmanager
def _bar() -> Iterator[Progress]:
    """The bar itself, whose import a quick verb is spared."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from ropewalk.cli.terminal import Terminal

    console = Terminal(sys.stderr)
    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task, stage = bar.add_task("", total=1.0, detail=""), ""

        def show(status: Status) -> None:
            nonlocal stage
            if status.stage != stage:  # the time left is that of the stage
                stage = status.stage
                bar.reset(task, description=stage, detail="")
            bar.update(task, completed=status.done, detail=status.detail)

        yield show
