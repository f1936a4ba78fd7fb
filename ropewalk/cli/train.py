"""`ropewalk train`: continued training at a longer context, with a plan."""

from __future__ import annotations

from ropewalk.api.train import train
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import DryRunOption, JsonOption, show_result
from ropewalk.training.results import Trained

EXAMPLE = "ropewalk train path/to/model --recipe anchor --to 32k --corpus books.jsonl"


@command_of(train)
def command(
    call: Call[Trained],
    *,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model further at a longer context, and export it with its plan. Resumable."""
    if dry_run:
        show_result(call.preview(), as_json=as_json)
    else:
        show_result(call(), as_json=as_json)
