"""`ropewalk plan`: a schedule for a longer context, from a model's config alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.api.plan import plan
from ropewalk.blocks import LIST, Details
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    check_outputs,
    drawn,
    print_json,
    save_plot,
    say,
    show,
    show_written,
    write_plan,
    written,
)
from ropewalk.errors import InputError
from ropewalk.models.recipes import VENDOR
from ropewalk.outputs import STANDARD_OUTPUT
from ropewalk.planning.extension import parse_settings
from ropewalk.planning.results import Planned
from ropewalk.scaling import stacked

if TYPE_CHECKING:
    from ropewalk.runtimes.serving import Serving

USUAL_PLAN = "plan.json"
"""The name of the plan in the lines to paste."""


@command_of(plan)
def command(
    call: Call[Planned],
    *,
    output: Annotated[Path | None, written("the plan here; - prints it alone")] = None,
    plot: Annotated[Path | None, drawn("the factors")] = None,
    details: Annotated[
        bool,
        typer.Option(
            help="Show every list of factors whole, all pairs of a method, and without --method "
            "the theory of each, and those left out."
        ),
    ] = False,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    given = dict(call.given)
    method = given.get("method")
    if "parameters" in given and method not in (None, VENDOR):
        stacked(method, VENDOR)
        given["parameters"] = parse_settings(method, given["parameters"])
    check_outputs(
        output=output, plot=plot, sources=call.places, overwrite=overwrite, as_json=as_json
    )
    if details and (as_json or output == STANDARD_OUTPUT):
        raise InputError(
            "--details is for the text of a terminal, which is not shown here; omit it"
        )
    found = replace(call, given=given)()
    if output is not None and output != STANDARD_OUTPUT:
        found = replace(found, serving=tuple(_naming(row, output) for row in found.serving))
    save_plot(found.figure, plot)  # first: without its figure, no plan is left behind
    write_plan(found.plan, output)
    if as_json:
        print_json(found)
    elif output != STANDARD_OUTPUT:  # else the plan alone stands there
        show(found, details=details, lists=details or output is not None)
        for hint in _hints(found, details=details, saved=output is not None):
            say(f"\n# {hint}")
    show_written(output, plot, as_json=as_json)


def _naming(row: Serving, output: Path) -> Serving:
    """The same lines with the name that the plan was saved under."""
    usual, own = (f"--plan {shlex.quote(str(path))}" for path in (USUAL_PLAN, output))
    return replace(row, lines=tuple(line.replace(usual, own) for line in row.lines))


def _hints(found: Planned, *, details: bool, saved: bool) -> Iterator[str]:
    """The options that would show more."""
    lines = [line for row in found.serving for line in row.lines]
    if not (details or saved) and any(LIST.search(line) for line in lines):
        yield f"lists of factors are left out of these lines: add -o {USUAL_PLAN} or --details"
    if not saved and any(USUAL_PLAN in line for line in lines):
        yield f"{USUAL_PLAN} is this plan: add -o {USUAL_PLAN} to write it"
    if not details and any(isinstance(block, Details) for block in found.blocks()):
        yield "the theory of each method, and those not listed: --details"
