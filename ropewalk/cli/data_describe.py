"""`ropewalk data describe`: the content of a store of tokens, and how it fills windows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.api.data import DataDescription, Fill, describe_data
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    check_outputs,
    save_plot,
    show_result,
    show_written,
    table,
)

EXAMPLE = "ropewalk data describe tokens --length 32k --plot lengths.png"


@command_of(describe_data)
def command(
    call: Call[DataDescription],
    *,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the lengths, as .png or .svg.")
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the documents of a token folder, and how they fill training windows."""
    source = Path(call.given["folder"])
    check_outputs(plot=plot, sources=[source], overwrite=overwrite, as_json=as_json)
    found = call()
    save_plot(found.figure, plot)
    show_result(found, _show, as_json=as_json)
    show_written(plot, as_json=as_json)


def _show(found: DataDescription) -> None:
    from ropewalk.cli.terminal import Terminal

    console = Terminal()
    console.print(found.summary(), soft_wrap=True)
    rows = table("domain", "documents", "tokens", "share", "mean length", "longest")
    for domain in found.domains:
        rows.add_row(
            domain.name,
            f"{domain.documents:,}",
            f"{domain.tokens:,}",
            f"{domain.tokens / found.tokens:.1%}",
            f"{domain.mean:,.0f}",
            f"{domain.longest:,}",
        )
    console.print()
    console.print(rows)
    if found.fill is not None:
        console.print()
        console.print(_read(found.fill))


def _read(fill: Fill) -> object:
    rows = table("in the first epoch", "tokens", "share", "each document is read")
    total = sum(group.tokens for group in fill.groups)
    for group in fill.groups:
        rows.add_row(
            group.name,
            f"{group.tokens:,}",
            f"{group.tokens / total:.1%}",
            f"{group.repeated:.2f} times",
        )
    return rows
