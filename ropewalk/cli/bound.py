"""`ropewalk bound`: how large the base must be for a context length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.api.bound import Bound, Bounds, bound
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
from ropewalk.lengths import format_length
from ropewalk.theory.bound import ASSUMPTIONS, SAMPLING_STEP

if TYPE_CHECKING:
    from ropewalk.cli.terminal import Terminal

EXAMPLE = "ropewalk bound 8k 32k 128k"


@command_of(bound)
def command(
    call: Call[Bounds],
    *,
    plot: Annotated[Path | None, drawn("the bounds, or the islands")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compute how large the base must be for a context length, with proof."""
    show_with_plot(call, _show, plot, overwrite=overwrite, as_json=as_json)


def _show(found: Bounds) -> None:
    rows = table(
        "length", "Men 2024", "Su 2024", "infimum", "safe base", "infinite head",
        title=f"Bounds of the base, {found.heads}",
    )  # fmt: skip
    for row in found.rows:
        mark = "" if row.safe_certified else " ?"
        rows.add_row(
            format_length(row.length),
            *(f"{value:.1e}" if value else "" for value in row.published.values()),
            "" if row.infimum is None else f"{row.infimum:,.10g}",
            "" if row.safe is None else f"{row.safe:,.7g}{mark}",
            "" if row.asymptotic is None else f"{row.asymptotic:,.0f}",
        )
    terminal = console()
    terminal.print(rows)
    if any(row.infimum is not None for row in found.rows):
        widths = [
            row.infimum_high / row.infimum_low - 1
            for row in found.rows
            if row.infimum_low is not None and row.infimum_high is not None
        ]
        terminal.print(
            "infimum: no base from 1 to it works, and one within a relative "
            f"{max([1e-9, *widths]):.0e} of it does, proven"
        )
    if any(row.safe is not None for row in found.rows):
        terminal.print("safe base: every larger base works, proven")
    if any(row.safe_certified is False for row in found.rows):
        terminal.print(
            f"(marked ?: estimated by trying bases {SAMPLING_STEP:.2%} apart, maybe too small)"
        )
    if any(row.infimum == 1 for row in found.rows):
        terminal.print("(infimum 1: every base from 1 on works)")
    say(f"proven, assuming: {'; '.join(ASSUMPTIONS)}")
    for row in found.rows:
        if row.islands is not None:
            _show_islands(terminal, row)


def _show_islands(terminal: Terminal, row: Bound) -> None:
    length = format_length(row.length)
    if not row.islands:
        terminal.print(f"\nno island of bases works for {length} below the safe base")
        return
    rows = table("from", "to", "highest / lowest", title=f"Islands of bases that work for {length}")
    for low, high in row.islands:
        rows.add_row(f"{low:,.10g}", f"{high:,.10g}", f"1 + {high / low - 1:.2g}")
    terminal.print()
    terminal.print(rows)
    terminal.print("every base on an island works, and none between islands does, proven alike")
