"""`ropewalk bound`: how large the base must be for a context length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.api.bound import Bounds, Only, bound
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    check_outputs,
    print_json,
    show_written,
    table,
)
from ropewalk.lengths import format_length, parse_lengths
from ropewalk.theory.bound import SAMPLING_STEP

EXAMPLE = "ropewalk bound 8k 32k 128k"


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LENGTH…", help="Context lengths, such as 8k 128k (default: 1k to 1M)."
        ),
    ] = None,
    head_dim: Annotated[
        int, typer.Option(metavar="N", help="Dimensions of a head, all of them rotating.")
    ] = 128,
    only: Annotated[
        Only | None, typer.Option(help="Compute only this bound (default: both).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the bounds, as .png or .svg.")
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compute how large the base must be for a context length, with proof."""
    lengths = parse_lengths(words) if words else None
    check_outputs(plot=plot, overwrite=overwrite)
    with progress_bar() as progress:
        found = bound(lengths, head_dim=head_dim, only=only, progress=progress)
    if plot is not None:
        from ropewalk.reports.figures import save

        save(found.figure(), plot)
    if as_json:
        print_json(found)
    else:
        _show(found)
    show_written(plot, as_json=as_json)


def _show(found: Bounds) -> None:
    from ropewalk.cli.terminal import Terminal

    rows = table(
        "length", "Men 2024", "Su 2024", "infimum", "safe base", "infinite head",
        title=f"Bounds of the base, heads of {found.head_dim}",
    )  # fmt: skip
    for row in found.rows:
        mark = "" if row.safe_certified else " ?"
        rows.add_row(
            format_length(row.length),
            *(f"{value:.1e}" if value else "" for value in row.published.values()),
            "" if row.infimum is None else f"{row.infimum:,.10g}",
            "" if row.safe is None else f"{row.safe:,.7g}{mark}",
            f"{row.asymptotic:,.0f}",
        )
    console = Terminal()
    console.print(rows)
    if any(row.infimum is not None for row in found.rows):
        console.print("infimum: no smaller base works, to a relative width of 1e-9, proven")
    if any(row.safe is not None for row in found.rows):
        console.print("safe base: every larger base works, proven")
    if any(row.safe_certified is False for row in found.rows):
        console.print(
            f"(marked ?: estimated by trying bases {SAMPLING_STEP:.2%} apart, maybe too small)"
        )
