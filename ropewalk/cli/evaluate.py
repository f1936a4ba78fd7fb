"""`ropewalk evaluate`: a model's retrieval and prediction at a length, under several plans."""

from __future__ import annotations

from typing import Annotated

import typer

from ropewalk.api.evaluate import evaluate
from ropewalk.api.evaluate_checkpoints import evaluate_checkpoints
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, say, show_result
from ropewalk.errors import InputError, printable
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.options import Shell
from ropewalk.torchrun import first


@command_of(evaluate)
def command(
    call: Call[Evaluated],
    *,
    checkpoints: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Take MODEL as a trainer's folder, evaluate its last N checkpoints, and show the "
            "mean and range of each score.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=Shell.preview)] = False,
    as_json: JsonOption = False,
) -> None:
    if dry_run:
        if checkpoints is not None:
            raise InputError("a preview covers one model: leave out --checkpoints, or --dry-run")
        show_result(call.preview(), as_json=as_json)
        return
    if checkpoints is None:
        show_result(call(), as_json=as_json)
    else:
        given = {"model": None, **call.given}
        several = Call(evaluate_checkpoints, given, call.quiet, call.aside)
        show_result(several(last=checkpoints), as_json=as_json)
    if "run" in call.given and first() and not as_json:
        say(f"records, results and figures are in {printable(str(call.given['run']))}")
