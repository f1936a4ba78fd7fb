"""Makes the whole command of a verb, if a shell adds nothing to it but files, previews and JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    check_outputs,
    drawn,
    print_json,
    save_plot,
    say,
    show_result,
    show_written,
)
from ropewalk.errors import GateFailed, printable
from ropewalk.options import RunFolder, Shell, declared
from ropewalk.torchrun import first


def derived(verb: Any) -> Callable[..., None]:
    """The command of a verb."""
    shell: Shell = verb.shell
    keeps = shell.kept and any(isinstance(each, RunFolder) for *_, each in declared(verb))

    def run(
        call: Call[Any],
        *,
        plot: Path | None = None,
        overwrite: bool = False,
        as_json: bool = False,
    ) -> None:
        check_outputs(plot=plot, sources=call.places, overwrite=overwrite)
        try:
            found = call()
        except GateFailed as error:
            if as_json and error.result is not None:
                print_json(error.result)
            raise
        save_plot(lambda: found.figure(), plot)
        show_result(found, as_json=as_json)
        show_written(plot, as_json=as_json)
        if keeps and "run" in call.given and first() and not as_json:
            say(f"{shell.kept} {printable(str(call.given['run']))}")
        if status := shell.status(found):
            raise typer.Exit(status)

    takes = {
        "plot": (Annotated[Path | None, drawn(shell.plot)], None, bool(shell.plot)),
        "overwrite": (OverwriteOption, False, bool(shell.plot)),
        "as_json": (JsonOption, False, True),
    }
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default, is_there) in takes.items()
        if is_there
    ]
    call = inspect.Parameter("call", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([call, *own])  # type: ignore[attr-defined]
    return command_of(verb)(run)
