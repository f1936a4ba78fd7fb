"""`ropewalk extend`: from a model and a length to exported files and the evidence, in one go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ropewalk.api.cost import Cost
from ropewalk.api.extend import extend
from ropewalk.cli.cost import show_cost
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import DryRunOption, JsonOption, print_json, say
from ropewalk.torchrun import first

if TYPE_CHECKING:
    from ropewalk.cli.terminal import Terminal
    from ropewalk.pipeline.cost import Estimate
    from ropewalk.pipeline.extend import Extended
    from ropewalk.pipeline.stage import Stage
    from ropewalk.values import Result

WIDTH = 110
OWN = "ropewalk extend path/to/model --to 128k --dry-run"
EXAMPLE = "ropewalk extend path/to/model --to 32k --run runs/extend"


@command_of(extend)
def command(
    call: Call[Extended],
    *,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Extend a model: judge, choose, train if asked to, export, verify. Resumable."""
    from ropewalk.cli.terminal import Terminal

    console = Terminal(sys.stderr if as_json else sys.stdout)
    if not console.is_terminal:
        console.width = WIDTH  # of the table of all methods
    if dry_run:
        estimate: Estimate | Cost = call.preview()
        if isinstance(estimate, Cost):
            show_cost(estimate, as_json=as_json)
        elif as_json:
            print_json(estimate)
        else:
            _show_cost(console, estimate)
        return
    found = call(done=lambda stage, result: _show_stage(console, stage, result))
    if not first():
        return
    if as_json:
        print_json(found)
    else:
        for line in (*found.lines, f"for your own model: {OWN}"):
            say(line)


def _show_cost(console: Terminal, estimate: Estimate) -> None:
    from rich.text import Text

    for row in estimate.stages:
        least = f"{row.least:,} to " if row.early else ""
        tokens = f"{least}{row.tokens:,} tokens, " if row.tokens else ""
        cost = f"{tokens}{row.range}" if row.seconds_high else "quick"
        cost += f": {row.early}" if row.early and row.tokens else ""
        told = Text.assemble(f"{row.stage:>9}  {row.does} ", (f"({cost})", "dim"))
        console.print(told, soft_wrap=True)
    console.print(
        f"{estimate.total} in all, the least if each stage ends as early as it can, by forwards "
        f"timed at {estimate.timed_at[0]:,} and {estimate.timed_at[1]:,} tokens on this machine",
        soft_wrap=True,
    )


def _show_stage(console: Terminal, stage: Stage[Any], result: Result) -> None:
    from ropewalk.cli.terminal import headed

    console.print(headed(stage.name, f"  {result.summary()}"), soft_wrap=True)
