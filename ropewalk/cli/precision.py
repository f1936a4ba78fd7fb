"""`ropewalk precision`: the effect of number formats on relative positions, and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.api.precision import precision
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, print_json, say, table
from ropewalk.evaluation.statistics import FEWEST
from ropewalk.lengths import format_length
from ropewalk.number_formats.conclusion import Precision
from ropewalk.number_formats.results import verdict

if TYPE_CHECKING:
    from ropewalk.cli.terminal import Terminal
    from ropewalk.number_formats.results import Estimate

EXAMPLE = "ropewalk precision path/to/model --quick"


@command_of(precision)
def command(
    call: Call[Precision],
    *,
    details: Annotated[
        bool, typer.Option("--details", help="Show tables, and each finding, not only the verdict.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how bf16 and other formats distort relative positions, and say what to do."""
    found = call()
    if as_json:
        print_json(found)
        return
    _show(found, details)
    if "run" in call.given:
        say(f"measurements, results and figures are in {call.given['run']}")


def _show(found: Precision, details: bool) -> None:
    from ropewalk.cli.terminal import Terminal, headed

    console = Terminal()
    forward = found.mode == "forward"
    mode = "a full forward pass per shift" if forward else "hidden states frozen"
    measured = f"{found.sequences} sequences of {format_length(found.length)} tokens"
    console.print(headed(found.model, f" on {found.device}, {measured}, {mode}"), soft_wrap=True)
    if details:
        _show_details(console, found)
    for line in found.diagnosis if details else verdict(found):
        console.print(f"- {line}", soft_wrap=True)
    if not details:
        console.print("(--details shows each number format, and all that was found)")


def _show_details(console: Terminal, found: Precision) -> None:
    from ropewalk.number_formats.arms import SUMMARIES

    rows = table("arm", "D", "95%", "rank", "ratio", "growth", "loss", "moved")
    for column in rows.columns[:3]:
        column.no_wrap = True
    for arm in found.arms:
        name = arm.arm if arm.weights == "given" else f"{arm.arm}, {arm.weights} weights"
        rows.add_row(
            name,
            f"{arm.strays.mean:.2g}",
            _interval(arm.strays),
            f"{arm.first_token_rank.overall}",
            "–" if arm.first_token_ratio is None else f"{arm.first_token_ratio.mean:.3g}",
            "–" if arm.growth is None else f"{arm.growth.mean:+.2f}",
            "–" if arm.loss is None else f"{arm.loss.mean:.4f}",
            "–" if arm.loss_change is None else f"{arm.loss_change.mean:.1e}",
        )
    console.print(rows)
    for name in dict.fromkeys(arm.arm for arm in found.arms):
        console.print(f"  {name}: {SUMMARIES[name]}", soft_wrap=True)
    console.print(
        f"D: Eq. 4 between shifts 0 and {found.reference}; rank: the first token's place by its "
        f"part of D, of {found.length} tokens; ratio: its part over the median token's; growth: "
        "the power of length that its logit difference follows; moved: how far a shift moves the "
        f"loss; {'; '.join(found.notes)}; 95%: Student's t over sequences, from {FEWEST} on\n",
        soft_wrap=True,
    )


def _interval(value: Estimate) -> str:
    _, low, high = value
    return "" if low is None or high is None else f"{low:.2g}–{high:.2g}"
