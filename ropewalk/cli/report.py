"""`ropewalk report`: a run as one page."""

from __future__ import annotations

from ropewalk.api.report import Reported, report
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, show_result

EXAMPLE = "ropewalk report runs/first"


@command_of(report)
def command(call: Call[Reported], *, as_json: JsonOption = False) -> None:
    """Write one self-contained HTML page of a run, of two evaluations, or an index of runs.

    The page loads nothing from elsewhere, can be read without scripts, and can be mailed.
    """
    show_result(call(), as_json=as_json)
