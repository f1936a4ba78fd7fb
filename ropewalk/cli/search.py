"""`ropewalk search`: the rescale factors that score best on the model itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from ropewalk.api.search import search
from ropewalk.arguments import as_length
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    check_outputs,
    show_result,
    show_written,
    write_plan,
    written,
)
from ropewalk.context_plan import PLAN
from ropewalk.lengths import format_length
from ropewalk.models.source import resolve
from ropewalk.outputs import STANDARD_OUTPUT
from ropewalk.searching.model.results import Searched
from ropewalk.torchrun import first


@command_of(search)
def command(
    call: Call[Searched],
    *,
    output: Annotated[Path | None, written("the plan here too; - prints it alone")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    given = call.given
    source = resolve(given["model"], allow_download=given.get("allow_download", False))
    check_outputs(output=output, sources=source.places, overwrite=overwrite, as_json=as_json)
    length = format_length(as_length(given["to"], "to"))
    run = given.get("run") or Path("runs") / f"search-{source.short_name}-{length}"
    found = replace(call, given={**given, "run": run})()
    if not first():
        return
    write_plan(found.plan, output)
    if output != STANDARD_OUTPUT:
        show_result(found, as_json=as_json)
    show_written(output, Path(run) / PLAN, as_json=as_json)
