"""`ropewalk data describe`: the content of a store of tokens, and how it fills windows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ropewalk.api.data import DataDescription, Fill, describe_data
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    console,
    drawn,
    say,
    show_with_plot,
    table,
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
    show_with_plot(call, _show, plot, sources=sources, overwrite=overwrite, as_json=as_json)


def _show(found: DataDescription) -> None:
    terminal = console()
    say(found.summary())
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
    terminal.print()
    terminal.print(rows)
    if found.fill is not None:
        terminal.print()
        terminal.print(_read(found.fill))


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
