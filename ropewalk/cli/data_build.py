"""`ropewalk data build`: training text as tokens on disk."""

from __future__ import annotations

from ropewalk.api.data import DataDescription, build_data
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, say, show_result

EXAMPLE = "ropewalk data build path/to/model --corpus books.jsonl -o tokens"


@command_of(build_data)
def command(call: Call[DataDescription], *, as_json: JsonOption = False) -> None:
    """Tokenise text into a folder that training maps into memory."""
    show_result(call(), as_json=as_json)
    if not as_json:
        folder = call.given["folder"]
        say(f"how it fills windows: ropewalk data describe {folder} --length 32k")
