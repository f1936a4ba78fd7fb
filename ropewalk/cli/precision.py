"""`ropewalk precision`: the effect of number formats on relative positions, and the remedy."""

from __future__ import annotations

from ropewalk.api.precision import precision
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, console, say, show_result, table
from ropewalk.errors import printable
from ropewalk.evaluation.statistics import FEWEST
from ropewalk.lengths import format_length
from ropewalk.number_formats.results import Precision

EXAMPLE = "ropewalk precision path/to/model --quick"


@command_of(precision)
def command(call: Call[Precision], *, as_json: JsonOption = False) -> None:
    """Measure how bf16 and other formats distort relative positions, and say what to do."""
    show_result(call(), _show, as_json=as_json)
    if "run" in call.given and not as_json:
        say(f"measurements, results and figures are in {printable(str(call.given['run']))}")


def _show(found: Precision) -> None:
    from ropewalk.number_formats.arms import SUMMARIES

    measured = f"{found.sequences} sequences of {format_length(found.length)} tokens"
    terminal = console(found.model, f" on {found.device}, {measured}")
    rows = table("arm", "D", "95%", "growth", "loss", "moved")
    for column in rows.columns[:3]:
        column.no_wrap = True
    for arm in found.arms:
        mean, low, high = arm.strays
        rows.add_row(
            arm.arm,
            f"{mean:.2g}",
            "" if low is None or high is None else f"{low:.2g}–{high:.2g}",
            "–" if arm.growth is None else f"{arm.growth.mean:+.2f}",
            f"{arm.loss.mean:.4f}",
            f"{arm.loss_change.mean:.1e}",
        )
    terminal.print(rows)
    for arm in found.arms:
        say(f"  {arm.arm}: {SUMMARIES[arm.arm]}")
    say(
        f"D: the change of attention between shifts 0 and {found.reference}, Eq. 4; growth: the "
        "power of length that the first token's logit difference follows; moved: how far a shift "
        f"moves the loss; 95%: Student's t over sequences, from {FEWEST} on\n"
    )
    for line in found.verdict:
        say(f"- {line}")
