"""The `ropewalk` command, derived from the verbs; a few have more in a file of their own here.

A call imports its own verb only, `--help` none. What is slow to import (torch, numba, matplotlib)
stays inside the function that needs it, so that the quick verbs start at once.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.main import get_command

from ropewalk.cli.help import RootHelp, VerbHelp
from ropewalk.cli.verbs import known
from ropewalk.cli.words import verb_meant
from ropewalk.errors import InputError
from ropewalk.extras import required_by

VERBS = tuple(known())
# The class of all complaints of the parser, which typer exports no name for.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
EXAMPLE = "ropewalk plan llama-3-8b --to 32k --method yarn -o plan.json"


def command_line(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """The command with these verbs."""
    app = typer.Typer(
        name="ropewalk",
        cls=RootHelp,
        invoke_without_command=True,
        add_completion=True,
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
        call = known()[verb].load()
        app.command(name=verb, cls=VerbHelp, epilog=call.shell.example)(_command(verb, call))
    return app


def _command(name: str, verb: Any) -> Callable[..., None]:
    """The command of a verb: its own in a file of that name, if a shell adds more, or derived."""
    if find_spec(module := f"{__name__}.{name.replace(' ', '_')}") is not None:
        made: Callable[..., None] = importlib.import_module(module).command
        return made
    from ropewalk.cli.declared import derived

    return derived(verb)


def call(arguments: Sequence[str]) -> int:
    """Do one call and return its exit status; faults are raised as a RopewalkError."""
    if "_ROPEWALK_COMPLETE" in os.environ:
        return _complete()
    arguments = _one_word(verb_meant(arguments))
    called = arguments[0] if arguments else ""
    with required_by(called), _warnings_in_words():
        command = get_command(command_line(_verbs_of(called)))
        try:
            with command.make_context("ropewalk", arguments) as context:
                command.invoke(context)
        except typer.Exit as done:
            return int(done.exit_code)
        except _USAGE_ERROR as error:
            verb = f"{called} " if called in VERBS else ""
            said = error.format_message().rstrip(".")  # type: ignore[attr-defined]
            raise InputError(f"{said}; see `ropewalk {verb}--help`") from None
    return 0


def _complete() -> int:
    """Answer a shell that completes a word: only the verb on its line is imported."""
    words = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
    app = command_line([verb] if (verb := next(iter(words[1:]), "")) in VERBS else ())
    for each in () if app.registered_commands else VERBS:
        app.command(name=each, help=known()[each].first)(lambda: None)
    try:
        get_command(app)(prog_name="ropewalk")
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def _one_word(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the words of a verb in one."""
    first, rest = " ".join(arguments[:2]), list(arguments[2:])
    if first in VERBS and len(arguments) > 1:
        return [first, *rest]
    several = [verb for verb in VERBS if arguments and verb.startswith(f"{arguments[0]} ")]
    if several and arguments[1:2] == ["--help"]:
        return ["--help"]
    if several:
        raise InputError(f"{first}: write {' or '.join(several)}; see `ropewalk --help`")
    return list(arguments)


def _verbs_of(called: str) -> Sequence[str]:
    """The verbs that a call needs: its own, none for the root's help, else all, for a guess."""
    if called in VERBS:
        return [called]
    return () if called in ("", "--help", "--version") else VERBS


@contextmanager
def _warnings_in_words() -> Iterator[None]:
    """Show Python's warnings as sentences, without the line of code that they come from."""

    def show(message: Warning | str, *details: object, **more: object) -> None:
        from ropewalk.cli.shared import notify

        notify(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
