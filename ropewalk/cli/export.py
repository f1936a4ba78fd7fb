"""`ropewalk export`: a model with its plan, in the form that a stock runtime loads."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ropewalk.api.export import export
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, print_json, show_result
from ropewalk.exporting.exported import Exported, NotTheSame


@command_of(export)
def command(
    call: Call[Exported],
    *,
    former_runtime: Annotated[
        str | None, typer.Option("--to", hidden=True, help="--runtime, until 1.0.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    try:
        exported = replace(call, given={"runtime": former_runtime, **call.given})()
    except NotTheSame as error:
        if as_json:
            print_json(error.exported)
        raise
    show_result(exported, as_json=as_json)
