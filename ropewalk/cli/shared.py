"""The output of commands, and the options for it that only a shell has."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ropewalk.cli.words import in_options
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, printable
from ropewalk.outputs import STANDARD_OUTPUT, check_file, write_atomically
from ropewalk.torchrun import first
from ropewalk.values import Result, Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]


def written(what: str) -> Any:
    """The option for the file of a result."""
    return typer.Option("--output", "-o", metavar="FILE", help=f"Write {what}.")


OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing file that ropewalk did not write.")
]


def say(text: str, file: TextIO | None = None) -> None:
    """Print a text of the package, with the command's options for the parameters that it names."""
    print(printable(in_options(text), keep="\n"), file=file)


def notify(text: str) -> None:
    """Tell the user something on standard error."""
    say(text, sys.stderr)


def print_json(result: Value) -> None:
    """One JSON object on standard output, and nothing else there; ASCII, for every terminal."""
    json.dump(result.to_json(), sys.stdout, indent=2, allow_nan=False)
    print()


def show_result(
    result: Result, *, as_json: bool, details: bool = False, lists: bool = False
) -> None:
    """Show what a command found, on one rank: one JSON object, or blocks for a person."""
    if not first():
        return
    if as_json:
        print_json(result)
        return
    from ropewalk.reports.terminal import Terminal, show

    show(result.blocks(), Terminal(), in_options, details=details, lists=lists)


def check_outputs(
    *,
    output: Path | None = None,
    plot: Path | None = None,
    sources: Iterable[Path] = (),
    overwrite: bool = False,
    as_json: bool = False,
) -> None:
    """Refuse a place that must not be written, before the work begins."""
    if output == STANDARD_OUTPUT and as_json:
        raise InputError("--json and -o - both print to standard output; give one of them")
    if output is not None and output != STANDARD_OUTPUT:
        check_file(output, key="output", sources=sources, overwrite=overwrite)
    if plot is not None:
        from ropewalk.reports.figures import format_of

        check_file(plot, key="plot", sources=sources, overwrite=overwrite)
        format_of(plot, "plot")
        if output is not None and output.resolve() == plot.resolve():
            raise InputError("--output and --plot name the same file; give two names")


def write_plan(plan: ContextPlan, output: Path) -> None:
    """Write a plan to the place of -o: a file, or standard output."""
    if output == STANDARD_OUTPUT:
        print(plan.dumps(), end="")
    else:
        write_atomically(output, plan.dumps())


def save_plot(draw: Callable[[], Figure], plot: Path | None) -> None:
    """Draw the figure and write it to the place of --plot."""
    if plot is not None:
        from ropewalk.reports.figures import save

        save(draw(), plot)


def show_written(*paths: Path | None, as_json: bool) -> None:
    """The files that a command wrote, if any; with --json, standard output holds that alone."""
    for path in paths:
        if path is not None and path != STANDARD_OUTPUT:
            (notify if as_json else say)(f"wrote {printable(str(path))}")
