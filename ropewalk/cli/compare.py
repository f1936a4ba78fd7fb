"""`ropewalk compare`: the difference of two evaluations, on the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.api.compare_runs import compare_runs
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    drawn,
    show_with_plot,
)
from ropewalk.evaluation.compared import ComparedRuns

if TYPE_CHECKING:
    pass

EXAMPLE = "ropewalk compare runs/tuned runs/base --plot difference.png"


@command_of(compare_runs)
def command(
    call: Call[ComparedRuns],
    *,
    plot: Annotated[Path | None, drawn("the differences by length")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two evaluations task by task and length by length, on the same samples.

    Differences are the first run minus the second.
    """
    show_with_plot(call, plot, overwrite=overwrite, as_json=as_json)
