"""`ropewalk export`: a model with its plan, in the form that a stock runtime loads."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ropewalk.api.export import ExportPreview, export
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, console, print_json, say, show_result, table
from ropewalk.errors import printable
from ropewalk.exporting.exported import Exported, NotTheSame
from ropewalk.runtimes import targets

EXAMPLE = "ropewalk export path/to/model --plan plan.json --runtime vllm -o extended"


@command_of(export)
def command(
    call: Call[Exported],
    *,
    former_runtime: Annotated[
        str | None, typer.Option("--to", hidden=True, help="--runtime, until 1.0.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show how each runtime supports the plan.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a model with its plan for a runtime, load it back, and compare it with the plan."""
    if dry_run:
        preview = call.preview()
        show_result(preview, _show_preview, as_json=as_json)
        return
    try:
        exported = replace(call, given={"runtime": former_runtime, **call.given})()
    except NotTheSame as error:
        if as_json:
            print_json(error.exported)
        raise
    show_result(exported, _show, as_json=as_json)


def _show(exported: Exported) -> None:
    say(f"wrote {printable(str(exported.path))}")
    if exported.agreement is not None:
        say(f"  {exported.agreement.runtime} follows the plan: {exported.agreement}")
    for warning in exported.warnings:
        say(f"  {warning}")
    if exported.load:
        say(f"  {exported.load}")
    if exported.drafting:
        say("with its drafter, written beside it:")
    for line in exported.drafting:
        say(f"  {line}")
    if exported.elsewhere:
        say("or, in Ollama (predicted from its rules, not run):")
    for line in exported.elsewhere:
        say(f"  {line}")
    if exported.overrides:
        say(f"or, on the source itself:\n  {exported.overrides}")


def _show_preview(preview: ExportPreview) -> None:
    rows = table("", *targets())
    for feature, row in preview.matrix.items():
        rows.add_row(feature, *(row[runtime].fit for runtime in targets()))
    console().print(rows)
    for feature, row in preview.matrix.items():
        hows: dict[str, list[str]] = {}
        for runtime, cell in row.items():
            if cell.how:
                hows.setdefault(str(cell), []).append(runtime)
        for said, runtimes in hows.items():
            say(f"  {feature}, {', '.join(runtimes)}: {said}")
    for runtime, loss in preview.losses.items():
        cost = loss or "not measured: its weights or torch are not here"
        say(f"  approximated in {runtime}: {cost}")
