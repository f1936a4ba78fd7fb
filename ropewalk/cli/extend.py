"""`ropewalk extend`: from a model and a length to exported files and the evidence, in one go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ropewalk.api.extend import extend
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, say, show_result
from ropewalk.torchrun import first

if TYPE_CHECKING:
    from ropewalk.pipeline.extend import Extended

OWN = "ropewalk extend path/to/model --to 128k --dry-run"


@command_of(extend)
def command(
    call: Call[Extended],
    *,
    as_json: JsonOption = False,
) -> None:
    shown = sys.stderr if as_json else sys.stdout
    found = call(done=lambda stage, result: say(f"{stage.name}  {result.summary()}", shown))
    show_result(found, as_json=as_json)
    if first() and not as_json:
        say(f"for your own model: {OWN}")
