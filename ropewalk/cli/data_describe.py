"""`ropewalk data describe`: what a store of tokens holds, and how it fills windows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.api.common import as_length
from ropewalk.api.data import DataDescription, Fill, describe_data
from ropewalk.cli.help import ADVANCED
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    check_outputs,
    print_json,
    save_plot,
    show_written,
    table,
)
from ropewalk.data.packing import Filling, Overflow
from ropewalk.data.windows import Arrangement
from ropewalk.errors import InvalidValue

EXAMPLE = "ropewalk data describe tokens --length 32k --plot lengths.png"


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `data build` wrote.")],
    length: Annotated[
        str | None,
        typer.Option(metavar="LENGTH", help="Also show how an epoch fills windows of this length."),
    ] = None,
    arrangement: Annotated[
        Arrangement, typer.Option(help="How documents stand in a window.")
    ] = "anchor",
    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOMAIN=SHARE", help="Share of the tokens of an epoch by domain; repeatable."
        ),
    ] = None,
    long_share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the tokens of each domain that long documents get, such as 0.7.",
        ),
    ] = None,
    long_from: Annotated[
        str, typer.Option(metavar="LENGTH", help="The length from which a document is long.")
    ] = "4k",
    tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of an epoch (default: all, once).")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="The length up to which positions skip, with --arrangement skip.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    filling: Annotated[
        Filling,
        typer.Option(
            help="Longest documents first, or documents in their order.", rich_help_panel=ADVANCED
        ),
    ] = "best_fit",
    overflow: Annotated[
        Overflow,
        typer.Option(
            help="What to do with the part of a document that does not fit.",
            rich_help_panel=ADVANCED,
        ),
    ] = "cut",
    check: Annotated[
        bool, typer.Option("--check", help="Compare every file with its checksum.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the lengths, as .png or .svg.")
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the documents of a token folder, and how they fill training windows."""
    check_outputs(plot=plot, sources=[folder], overwrite=overwrite, as_json=as_json)
    with progress_bar() as progress:
        found = describe_data(
            folder,
            length=length,
            arrangement=arrangement,
            filling=filling,
            overflow=overflow,
            shares=_shares(share or []) or None,
            tokens=tokens,
            long_from=as_length(long_from, "long_from"),
            long_share=long_share,
            target=target,
            check=check,
            progress=progress,
        )
    save_plot(found.figure, plot)
    if as_json:
        print_json(found)
    else:
        _show(found)
    show_written(plot, as_json=as_json)


def _shares(given: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in given:
        name, _, share = each.rpartition("=")
        try:
            value = float(share)
        except ValueError:
            name = ""
        if not name:
            raise InvalidValue("share", each, "is not DOMAIN=SHARE", "write --share code=0.2")
        if name in found:
            raise InvalidValue("share", each, f"is a second share for {name}", "give one of them")
        found[name] = value
    return found


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
