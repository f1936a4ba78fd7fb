"""`ropewalk precision`: the effect of number formats on relative positions, and the remedy."""

from __future__ import annotations

from ropewalk.api.precision import precision
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, say, show_result
from ropewalk.errors import printable
from ropewalk.number_formats.results import Precision

EXAMPLE = "ropewalk precision path/to/model --quick"


@command_of(precision)
def command(call: Call[Precision], *, as_json: JsonOption = False) -> None:
    """Measure how bf16 and other formats distort relative positions, and say what to do."""
    show_result(call(), as_json=as_json)
    if "run" in call.given and not as_json:
        say(f"measurements, results and figures are in {printable(str(call.given['run']))}")
