"""Options that only a shell has, and how the verbs show schedules and tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

import numpy as np
import typer

from ropewalk.cli.naming import in_options
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, printable
from ropewalk.lengths import format_length
from ropewalk.outputs import STANDARD_OUTPUT, check_file, write_atomically
from ropewalk.scaling import named, names
from ropewalk.schedule import MAX_FACTOR, Recipe, RotarySchedule
from ropewalk.torchrun import first
from ropewalk.values import Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from ropewalk.cli.terminal import Terminal

R = TypeVar("R", bound=Value)

HOW_COMPARED = (
    "Rates: Newcombe's interval, p by McNemar; means over tasks, several answers of a text: "
    "Newcombe's interval, p by Student's t; partial scores, losses: Student's t for both"
)
"""The interval and the p-value of a difference may come from different tests."""

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Only show what would be done, and its cost here or on another machine (--on).",
    ),
]


def drawn(what: str) -> Any:
    """The option for the file of a figure."""
    return typer.Option("--plot", metavar="FILE", help=f"Draw {what}, as .png or .svg.")


def written(what: str) -> Any:
    """The option for the file of a result."""
    return typer.Option("--output", "-o", metavar="FILE", help=f"Write {what}.")


OverwriteOption = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace an existing file that ropewalk did not write."),
]

ROWS = 16  # of a table of pairs; all of them are in --json


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


def show_summary(found: Any) -> None:
    say(found.summary())


def show_result(found: R, in_words: Callable[[R], None] = show_summary, *, as_json: bool) -> None:
    """Show what a command found, on one rank: one JSON object, or words for a person."""
    if not first():
        return
    if as_json:
        print_json(found)
    else:
        in_words(found)


def console(name: str = "", rest: str = "") -> Terminal:
    """A console on standard output; a name, in bold, and the rest of its line are shown first."""
    from ropewalk.cli.terminal import Terminal, headed

    opened = Terminal()
    if name:
        opened.print(headed(name, rest), soft_wrap=True)
    return opened


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


def write_plan(plan: ContextPlan, output: Path | None) -> None:
    """Write a plan to the place of -o: a file, or standard output."""
    if output == STANDARD_OUTPUT:
        print(plan.dumps(), end="")
    elif output is not None:
        write_atomically(output, plan.dumps())


def save_plot(draw: Callable[[], Figure], plot: Path | None) -> None:
    """Draw the figure and write it to the place of --plot."""
    if plot is not None:
        from ropewalk.reports.figures import save

        save(draw(), plot)


def show_with_plot(
    call: Callable[[], Any],
    in_words: Callable[[Any], None],
    plot: Path | None,
    *,
    sources: Iterable[Path] = (),
    overwrite: bool,
    as_json: bool,
) -> None:
    """Run a command whose only file is its figure."""
    check_outputs(plot=plot, sources=sources, overwrite=overwrite)
    found = call()
    save_plot(found.figure, plot)
    show_result(found, in_words, as_json=as_json)
    show_written(plot, as_json=as_json)


def show_written(*paths: Path | None, as_json: bool) -> None:
    """The files that a command wrote, if any; with --json, standard output holds that alone."""
    for path in paths:
        if path is not None and path != STANDARD_OUTPUT:
            (notify if as_json else say)(f"wrote {printable(str(path))}")


def show_steps(console: Terminal, plan: ContextPlan) -> None:
    """Every schedule of a plan, one a line."""
    for name, steps in plan.schedules.items():
        for step in steps:
            upto = f" up to {format_length(step.up_to_length)}" if len(steps) > 1 else ""
            told = f"  {name}{upto}: {in_words(step.schedule)}"
            console.print(told, soft_wrap=True)


def factor_cell(factor: float) -> str:
    """A rescale factor in a table of pairs."""
    return f"{factor:.4f}" if factor < MAX_FACTOR else "does not turn"


def in_words(schedule: RotarySchedule) -> str:
    """A schedule in one line: its methods, its factors, and its other values."""
    factors = schedule.rescale_factors
    steps = (str(_without_defaults(step)) for step in schedule.recipe)
    parts = [told] if (told := " then ".join(steps)) else []
    low, high = f"{factors.min():.4g}", f"{factors.max():.4g}"
    if schedule.has_no_positions:
        parts.append("no positions")
    elif low != high:
        parts.append(f"factors {low} to {high}")
    elif low != "1":
        parts.append(f"all factors {low}")
    elif not parts:
        parts.append("pretrained frequencies")
    if schedule.attention_scaling != 1:
        parts.append(f"attention factor {schedule.attention_scaling:.6g}")
    if schedule.softmax_scaling != 1:
        parts.append(f"logits times {schedule.softmax_scaling:.6g}")
    if schedule.kept_initial_positions:
        parts.append(f"first {schedule.kept_initial_positions} positions kept")
    if schedule.log_n:
        parts.append(f"log-n {schedule.log_n.form} from {format_length(schedule.log_n.length)}")
    return "; ".join(parts)


def _without_defaults(step: Recipe) -> Recipe:
    """The parameters that a person must give to get this step."""
    known = named(step.method).parameters if step.method in names() else {}
    said = {
        key: value
        for key, value in step.parameters.items()
        if key not in known or known[key].default != value
    }
    return Recipe(step.method, said)


def pair_rows(pairs: int) -> list[int]:
    """The pairs that a table shows: evenly spaced, the last one among them."""
    return sorted({round(i) for i in np.linspace(0, pairs - 1, min(pairs, ROWS))})


def table(*columns: str, title: str | None = None) -> Table:
    """A plain table, numbers to the right."""
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for i, column in enumerate(columns):
        result.add_column(column, justify="right" if i else "left", overflow="fold")
    return result
