"""Progress of long computations: every verb reports it, and its caller may show it."""

from __future__ import annotations

import os
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple, TypeAlias

from ropewalk.errors import printable


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

    logging.getLogger("ropewalk").warning(printable(text))


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

    def of_part(done: float) -> None:
        progress(Status(name, begin + size * done, detail))

    return of_part


PATIENCE = 1.5
EVERY = 30.0
"""Seconds between two lines, if there is no terminal to draw a bar on."""
AT_ONCE = 1.0
"""Seconds after a stage began, in which an earlier session's work is reported."""
OFTEN = 0.2
"""Seconds between two pictures of a bar in a notebook."""


def of_a_command(work: str) -> AbstractContextManager[Progress]:
    """A bar, or lines in a file; `work` is the name of the first stage."""
    # As rich decides; a quick verb is spared its import.
    is_drawn = sys.stderr.isatty() or "FORCE_COLOR" in os.environ
    return _after_patience(_bar) if is_drawn else _lines(work)


def of_a_call(reporter: Progress | None) -> AbstractContextManager[Progress]:
    """The progress that a caller of a verb asked for; the default is a bar, if anyone looks on."""
    if reporter is not shown:
        return nullcontext(reporter or silent)
    if _in_a_notebook():
        return _after_patience(_bar_of_a_notebook)
    on_a_terminal = getattr(sys.stderr, "isatty", lambda: False)()
    return _after_patience(_bar) if on_a_terminal else nullcontext(silent)


@contextmanager
def _after_patience(draw: Callable[[], AbstractContextManager[Progress]]) -> Iterator[Progress]:
    """Draws nothing of quick work."""
    began, drawn = time.monotonic(), None
    with ExitStack() as stack:

        def show(status: Status) -> None:
            nonlocal drawn
            if drawn is None and time.monotonic() - began > PATIENCE:
                drawn = stack.enter_context(draw())
            if drawn is not None:
                drawn(status)

        yield show


def _in_a_notebook() -> bool:
    """True in a kernel of Jupyter, where standard error is no terminal."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class _Pace:
    """The pace of a stage, by the later half of what it reported.

    Work that an earlier session did is reported at once, and would make this one look fast.
    """

    def __init__(self, work: str = "") -> None:
        self.latest, self._began = Status(work, 0.0), time.monotonic()
        self._seen = [(0.0, 0.0)]
        """Seconds after the stage began, and the share that was done then."""

    def take(self, status: Status) -> bool:
        """True if a stage begins."""
        begins = status.stage != self.latest.stage
        if begins:
            self._began, self._seen = time.monotonic(), []
        self.latest = status
        now = time.monotonic() - self._began
        if len(self._seen) > 1 and now - self._seen[-2][0] < OFTEN:
            self._seen.pop()  # a stage may report millions of times
        self._seen.append((now, status.done))
        return begins

    def line(self) -> str:
        """The latest status in words."""
        return line(self.latest, time.monotonic() - self._began, self.left())

    def left(self) -> float | None:
        """Seconds, if the pace shows how many."""
        now, done = self._seen[-1]
        then, before = self._seen[bisect_right(self._seen, (max(now / 2, AT_ONCE), 2.0)) - 1]
        if not before < done < 1:
            return None
        waited = time.monotonic() - self._began - now
        return max(0.0, (now - then) * (1 - done) / (done - before) - waited)


@contextmanager
def _lines(work: str) -> Iterator[Progress]:
    """A line every half minute, also while one step takes longer than that."""
    over, pace = threading.Event(), _Pace(work)

    def show(status: Status) -> None:
        pace.take(status)

    def tell() -> None:
        while not over.wait(EVERY):
            if pace.latest.stage:
                print(pace.line(), file=sys.stderr, flush=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield show
    finally:
        over.set()
        thread.join()


def line(status: Status, seconds: float, left: float | None) -> str:
    """A status in words, `seconds` after its stage began."""
    parts = (f"{status.done:.0%} after {_clock(seconds)}", _left(left), status.detail)
    return printable(f"{status.stage}: {', '.join(filter(None, parts))}")


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f"about {_clock(seconds)} left"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=Console(stderr=True, markup=False, emoji=False, highlight=False),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # else what is printed would miss its file
    ) as bar:
        task, pace = bar.add_task("", total=1.0, detail="", left=""), _Pace()

        def show(status: Status) -> None:
            if pace.take(status):  # the time left is that of the stage
                bar.reset(task, description=printable(status.stage))
            left = _left(pace.left())
            bar.update(task, completed=status.done, detail=printable(status.detail), left=left)

        yield show


@contextmanager
def _bar_of_a_notebook() -> Iterator[Progress]:
    """An output of its own in the cell, which ends empty; rich would need ipywidgets."""
    from html import escape

    from IPython.display import display

    place = display({"text/plain": ""}, raw=True, display_id=True)
    pace, drawn = _Pace(), 0.0

    def show(status: Status) -> None:
        nonlocal drawn
        if not pace.take(status) and time.monotonic() - drawn < OFTEN:
            return
        drawn, text = time.monotonic(), pace.line()
        picture = f"<progress value={status.done:.3f}></progress> {escape(text)}"
        place.update({"text/plain": text, "text/html": picture}, raw=True)

    try:
        yield show
    finally:
        place.update({"text/plain": "", "text/html": ""}, raw=True)
