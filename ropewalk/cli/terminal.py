"""The console that verbs print to: names and values from files are shown, never obeyed.

Square brackets are no markup, and control characters appear as escapes, in tables too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ropewalk.errors import printable


class Terminal(Console):
    """A console on standard output that prints text as text."""

    def __init__(self, file: TextIO | None = None, **settings: Any) -> None:
        super().__init__(
            file=file or sys.stdout, markup=False, emoji=False, highlight=False, **settings
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=printable(segment.text, keep="\n"))

    def on_broken_pipe(self) -> None:
        """Let the entry point end the command, with the status of other Unix tools."""
        raise BrokenPipeError


def headed(name: str, rest: str) -> Text:
    """A line that begins with a name in bold."""
    return Text.assemble((name, "bold"), rest)
