"""`ropewalk methods`: the scaling methods and their parameters."""

from __future__ import annotations

from ropewalk.api.methods import Methods, methods
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, show_result

EXAMPLE = "ropewalk methods"


@command_of(methods)
def command(call: Call[Methods], *, as_json: JsonOption = False) -> None:
    """List the scaling methods, each with its parameters and their defaults."""
    show_result(call(), as_json=as_json)
