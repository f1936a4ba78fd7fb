"""`ropewalk cost`: a model's cost in memory and time, before it is run."""

from __future__ import annotations

from ropewalk.api.cost import Cost, CostRow, cost
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, console, say, show_result, table
from ropewalk.costs.estimates import duration
from ropewalk.costs.machines import GIB

EXAMPLE = "ropewalk cost llama-3.1-8b --to 1M --on 8xh100"


@command_of(cost)
def command(call: Call[Cost], *, as_json: JsonOption = False) -> None:
    """Say what serving, evaluating, searching and training take, before anything is run."""
    show_cost(call(), as_json=as_json)


def show_cost(found: Cost, *, as_json: bool) -> None:
    """Also the preview of other commands."""
    show_result(found, _show, as_json=as_json)


def _show(found: Cost) -> None:
    terminal = console()
    timed = any(row.seconds is not None for row in found.rows)
    rows = table("", "a device", *(["time"] if timed else []), "fits")
    for row in found.rows:
        time = [duration(row.seconds)] if timed else []
        rows.add_row(row.what, f"{row.bytes / GIB:,.1f} GiB", *time, fits(row))
    terminal.print(rows)
    for row in found.rows:
        say(f"{row.what}: {parts(row)}")
    terminal.print()
    say(found.summary())
    for told in found.assumptions:
        say(f"  {told}")


def parts(row: CostRow) -> str:
    return ", ".join(f"{name} {size / GIB:,.1f}" for name, size in row.parts.items())


def fits(row: CostRow) -> str:
    if row.breaks is None:
        return "yes"
    told = f"no room for {_PARTS.get(row.breaks, row.breaks)}"
    if row.change is None:
        return f"{told}, and no change of ours makes it"
    return f"{told}; {row.change.told} fits ({row.change.bytes / GIB:,.1f} GiB)"


_PARTS = {"weights": "the weights", "cache": "the cache", "loss": "the loss"}
