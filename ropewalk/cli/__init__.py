"""The `ropewalk` command: one file a verb, each with a `command` function.

A call imports its own verb only, and what is slow to import (torch, numba, matplotlib) stays inside
the function that needs it, so that the quick verbs start at once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import typer

from ropewalk.errors import RopewalkError
from ropewalk.extras import required_by

VERBS = (
    *("extend", "bound", "inspect", "plan", "search", "evaluate", "export", "verify"),
    *("precision", "methods"),
)


def command_line(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """The command with these verbs."""
    app = typer.Typer(
        name="ropewalk",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def _root() -> None:
        """Extend the context window of a RoPE language model, and prove that it works."""

    for verb in verbs:
        app.command(name=verb)(importlib.import_module(f"ropewalk.cli.{verb}").command)
    return app


def main() -> None:
    """Run the command; what is wrong is one line on standard error, and the exit status."""
    called = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        with required_by(called):
            command_line([called] if called in VERBS else VERBS)()
    except RopewalkError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
