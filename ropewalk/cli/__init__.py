"""The `ropewalk` command: one file a verb, each with a `command` function and an `EXAMPLE` of it.

A call imports its own verb only, and what is slow to import (torch, numba, matplotlib) stays inside
the function that needs it, so that the quick verbs start at once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ropewalk.cli.help import GROUPS, RootHelp, VerbHelp
from ropewalk.errors import RopewalkError
from ropewalk.extras import required_by

VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
EXAMPLE = "ropewalk plan llama-3-8b --to 32k --method yarn -o plan.json"


def command_line(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """The command with these verbs."""
    app = typer.Typer(
        name="ropewalk",
        cls=RootHelp,
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog=EXAMPLE,
    )

    @app.callback()
    def _root(
        context: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", help="Show the version and exit.")
        ] = False,
    ) -> None:
        """Extend the context window of a RoPE language model, and prove that it works."""
        if version:
            from ropewalk import __version__

            print(f"ropewalk {__version__}")
            raise typer.Exit
        if context.invoked_subcommand is None:
            print(context.get_help())

    for verb in verbs:
        module = importlib.import_module(f"ropewalk.cli.{verb}")
        app.command(name=verb, cls=VerbHelp, epilog=module.EXAMPLE)(module.command)
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
