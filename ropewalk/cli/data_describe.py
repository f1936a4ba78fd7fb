"""`ropewalk data describe`: the content of a store of tokens, and how it fills windows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ropewalk.api.data import DataDescription, describe_data
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    drawn,
    show_with_plot,
)

EXAMPLE = "ropewalk data describe tokens --length 32k --plot lengths.png"


@command_of(describe_data)
def command(
    call: Call[DataDescription],
    *,
    plot: Annotated[Path | None, drawn("the lengths")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the documents of a token folder, and how they fill training windows."""
    sources = [Path(call.given["folder"])]
    show_with_plot(call, plot, sources=sources, overwrite=overwrite, as_json=as_json)
