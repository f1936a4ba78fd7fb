"""`ropewalk inspect`: a model's rotary embedding, and its present scaling."""

from __future__ import annotations

from ropewalk.api.inspect import Inspection, inspect
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    show_result,
)

EXAMPLE = "ropewalk inspect llama-3.1-8b"


@command_of(inspect)
def command(call: Call[Inspection], *, as_json: JsonOption = False) -> None:
    """Show a model's rotary geometry and the schedule it follows now."""
    show_result(call(), as_json=as_json)
