"""The `ropewalk` command: one file a verb, each with a `command` function.

Whatever is slow to import (torch, numba, matplotlib) is imported inside the function that needs it,
so that `--help` and the quick verbs start at once.
"""

from __future__ import annotations

import sys

import typer

from ropewalk.cli import evaluate, inspect, methods, plan, precision
from ropewalk.errors import RopewalkError

app = typer.Typer(
    name="ropewalk",
    help="Extend the context window of a RoPE language model, and prove that it works.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (inspect, plan, evaluate, precision, methods):
    app.command(name=verb.__name__.rpartition(".")[2])(verb.command)


@app.callback()
def _root() -> None:
    """Extend the context window of a RoPE language model, and prove that it works."""


def main() -> None:
    """Run the command; what is wrong is one line on standard error, and the exit status."""
    try:
        app()
    except RopewalkError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
