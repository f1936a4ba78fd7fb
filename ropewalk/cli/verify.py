"""`ropewalk verify`: the real behaviour of a folder or a GGUF file on disk in each runtime."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from ropewalk.api.verify import verify
from ropewalk.audit.files.check import Verdict
from ropewalk.audit.result import Audit
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, show_result

EXAMPLE = "ropewalk verify extended --plan plan.json"
EXIT: Mapping[Verdict, int] = {"OK": 0, "wrong": 1, "not established": 3}
_COLOUR: Mapping[Verdict, str] = {"OK": "green", "wrong": "red", "not established": "yellow"}


@command_of(verify)
def command(call: Call[Audit], *, as_json: JsonOption = False) -> None:
    """Check an exported model, from any tool, for silent long-context faults.

    Exit code: 0 passed, 1 failed, 3 inconclusive.
    """
    found = call()
    show_result(found, as_json=as_json)
    if found.verdict != "OK":
        raise typer.Exit(EXIT[found.verdict])
