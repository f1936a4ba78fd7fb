"""Commands called in this process, as a user types them."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from ropewalk.cli import command_line


def result_of(*words: object) -> Result:
    """What a command left; an error of ours is raised, as it is for `main`."""
    typed = [str(word) for word in words]
    result = CliRunner().invoke(command_line(typed[:1]), typed)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        result.exception.add_note(result.stdout)
        raise result.exception
    return result


def ropewalk(*words: object) -> str:
    """Standard output of a command that succeeds."""
    result = result_of(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def ropewalk_json(*words: object) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(ropewalk(*words, "--json"))
    return value
