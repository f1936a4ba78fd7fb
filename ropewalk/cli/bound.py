"""`ropewalk bound`: how large the base must be for a context length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ropewalk.api.bound import Bounds, bound
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, OverwriteOption, drawn, show_with_plot

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
    show_with_plot(call, plot, overwrite=overwrite, as_json=as_json)
