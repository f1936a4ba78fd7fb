"""`ropewalk search`: the rescale factors that score best on the model itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.api.common import as_length
from ropewalk.api.search import search
from ropewalk.cli.cost import show_cost
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    DryRunOption,
    JsonOption,
    OverwriteOption,
    check_outputs,
    console,
    print_json,
    say,
    show_written,
    table,
    write_plan,
    written,
)
from ropewalk.context_plan import PLAN
from ropewalk.lengths import format_length
from ropewalk.models.source import resolve
from ropewalk.outputs import STANDARD_OUTPUT
from ropewalk.torchrun import first

if TYPE_CHECKING:
    from ropewalk.cli.terminal import Terminal
    from ropewalk.searching.model.results import Leg, Score, Searched

EXAMPLE = "ropewalk search path/to/model --to 32k --run runs/search"


@command_of(search)
def command(
    call: Call[Searched],
    *,
    output: Annotated[Path | None, written("the plan here too; - prints it alone")] = None,
    overwrite: OverwriteOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search the rescale factors for a longer context, by perplexity and retrieval together."""
    if dry_run:
        show_cost(call.preview(), as_json=as_json)
        return
    given = call.given
    source = resolve(given["model"], allow_download=given.get("allow_download", False))
    check_outputs(output=output, sources=source.places, overwrite=overwrite, as_json=as_json)
    length = format_length(as_length(given["to"], "to"))
    run = given.get("run") or Path("runs") / f"search-{source.short_name}-{length}"
    found = replace(call, given={**given, "run": run})()
    if not first():
        return
    write_plan(found.plan, output)
    if as_json:
        print_json(found)
    elif output != STANDARD_OUTPUT:
        _show(found)
    show_written(output, Path(run) / PLAN, as_json=as_json)


def _show(found: Searched) -> None:
    terminal = console(found.model, f", {found.dtype} on {found.device}")
    for leg in found.legs:
        _show_leg(terminal, leg)
    terminal.print(
        f"{sum(leg.evaluations for leg in found.legs):,.1f} evaluations, "
        f"{sum(leg.tokens for leg in found.legs):,} tokens, {found.seconds:,.0f} s"
    )


def _show_leg(terminal: Terminal, leg: Leg) -> None:
    from rich.text import Text

    from ropewalk.searching.model.results import (
        bounds_in_words,
        limited_in_words,
        short_in_words,
        tried_in_words,
        verdict_in_words,
    )

    rows = table(
        f"to {format_length(leg.length)}, held out", "score", "perplexity", "retrieval", "searched"
    )
    for name, arm in leg.baselines.items():
        rows.add_row(name, *_cells(arm.reporting), _number(arm.search.score, 4))
    rows.add_row(
        Text("search" if leg.method is None else f"chosen: {leg.method}", style="bold"),
        *_cells(leg.best.reporting),
        _number(leg.best.search.score, 4),
    )
    terminal.print(rows)
    if leg.method is not None:
        beaten = f"search did not beat {leg.best_hand_designed}: {tried_in_words(leg)}"
        say(beaten)
    if leg.held_out is not None:
        say(verdict_in_words(leg))
    if limited := limited_in_words(leg):
        say(limited)
    if leg.cost_at_original_length is not None:
        say(short_in_words(leg))
    if leg.at_bounds:
        say(bounds_in_words(leg))
    if leg.method is None:
        say(
            f"score of {leg.best_hand_designed} minus that of the search: "
            f"{leg.gain('reporting'):+.4f} on held-out documents, {leg.gain('search'):+.4f} on "
            "those of the search; the excess of the second is overfitting and chance"
        )


def _cells(score: Score) -> tuple[str, str, str]:
    return (
        _number(score.score, 4),
        _number(score.perplexity, 2),
        f"{score.retrieval:.1%}",
    )


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value < float("inf") else "failed"
