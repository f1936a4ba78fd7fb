"""`ropewalk cost`: a model's cost in memory and time, before it is run."""

from __future__ import annotations

from ropewalk.api.cost import Cost, cost
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, show_result

EXAMPLE = "ropewalk cost llama-3.1-8b --to 1M --on 8xh100"


@command_of(cost)
def command(call: Call[Cost], *, as_json: JsonOption = False) -> None:
    """Say what serving, evaluating, searching and training take, before anything is run."""
    show_result(call(), as_json=as_json)
