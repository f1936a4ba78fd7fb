"""`ropewalk report`: a run as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.api.report import report
from ropewalk.cli.shared import JsonOption, OverwriteOption, print_json

EXAMPLE = "ropewalk report runs/first"


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    other: Annotated[
        Path | None,
        typer.Argument(metavar="OTHER", help="Another one: both of `evaluate`, to be compared."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The page. Default: report.html in the run."
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page of a run, or of two evaluations side by side.

    The page loads nothing from elsewhere, can be read without scripts, and can be mailed.
    """
    found = report(*filter(None, (run, other)), out=out, overwrite=overwrite)
    if as_json:
        print_json(found)
    else:
        from ropewalk.cli.terminal import Terminal

        Terminal().print(found.summary(), soft_wrap=True)
