"""Progress on standard error: a bar after two seconds, or to a file a line every half minute."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ropewalk.errors import printable
from ropewalk.progress import Progress, Status

PATIENCE = 1.5
EVERY = 30.0
"""Seconds between two lines, if there is no terminal to draw a bar on."""


@contextmanager
def progress_bar(work: str = "") -> Iterator[Progress]:
    """Gives a function to call with each status; nothing is shown of quick work.

    `work` is the name of the first stage, for the lines.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        drawn = None if _on_a_terminal() else stack.enter_context(_lines(work))

        def show(status: Status) -> None:
            nonlocal drawn
            if drawn is None and time.monotonic() - began > PATIENCE:
                drawn = stack.enter_context(_bar())
            if drawn is not None:
                drawn(status)

        yield show


def _on_a_terminal() -> bool:
    """True if rich would see a terminal; a quick verb is spared its import."""
    return sys.stderr.isatty() or "FORCE_COLOR" in os.environ


@contextmanager
def _lines(work: str) -> Iterator[Progress]:
    """A line every half minute, also while one step takes longer than that."""
    over, latest = threading.Event(), Status(work, 0.0)
    since = time.monotonic()

    def show(status: Status) -> None:
        nonlocal latest, since
        if status.stage != latest.stage:
            since = time.monotonic()
        latest = status

    def tell() -> None:
        while not over.wait(EVERY):
            if latest.stage:
                print(line(latest, time.monotonic() - since), file=sys.stderr, flush=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield show
    finally:
        over.set()
        thread.join()


def line(status: Status, seconds: float) -> str:
    """A status in words, `seconds` after its stage began."""
    told = [f"{status.done:.0%} after {_clock(seconds)}"]
    if 0 < status.done < 1:
        told.append(f"about {_clock(seconds * (1 - status.done) / status.done)} left")
    if status.detail:
        told.append(status.detail)
    return printable(f"{status.stage}: {', '.join(told)}")


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


@contextmanager
def _bar() -> Iterator[Progress]:
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
    ) as bar:
        task, stage = bar.add_task("", total=1.0, detail=""), ""

        def show(status: Status) -> None:
            nonlocal stage
            if status.stage != stage:  # the time left is that of the stage
                stage = status.stage
                bar.reset(task, description=stage, detail="")
            bar.update(task, completed=status.done, detail=status.detail)

        yield show
