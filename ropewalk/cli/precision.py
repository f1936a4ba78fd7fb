"""`ropewalk precision`: what number formats do to a model's relative positions, and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.api.precision import Precision, precision
from ropewalk.cli.help import ADVANCED
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    CorpusOption,
    DeviceOption,
    DownloadOption,
    JsonOption,
    RunnableModel,
    StrictOption,
    notify,
    print_json,
    say,
    table,
)
from ropewalk.errors import InvalidValue
from ropewalk.lengths import format_length
from ropewalk.number_formats.results import verdict

if TYPE_CHECKING:
    from ropewalk.cli.terminal import Terminal
    from ropewalk.number_formats.results import Estimate

EXAMPLE = "ropewalk precision path/to/model --quick"


def command(
    model: RunnableModel,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few shifts and sequences, and no random weights.")
    ] = False,
    length: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Tokens per sequence (default: the window, up to 4k, or 512 with --quick).",
        ),
    ] = None,
    sequences: Annotated[
        int | None,
        typer.Option(help="Number of sequences (default: 50, or 4 with --quick)."),
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Number formats to compare: some of fp64, fp32, bf16, fp16 (default: all, with "
            "those below).",
        ),
    ] = None,
    shifts: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Shifts of all positions to measure, 0 among them (default: the article's).",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Lengths at which the growth is measured (default: powers of two from 64).",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    frozen: Annotated[
        bool,
        typer.Option(
            "--frozen",
            help="Keep hidden states, so that each layer shows its own error.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    corpus: CorpusOption = "held-out",
    seed: Annotated[int, typer.Option(help="Seed of random weights and retrieval samples.")] = 0,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep measurements here, and resume (default: keep nothing)."
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="How to load the model; the formats compared are their own.",
            rich_help_panel=ADVANCED,
        ),
    ] = "float32",
    device: DeviceOption = "auto",
    allow_download: DownloadOption = False,
    strict: StrictOption = False,
    details: Annotated[
        bool, typer.Option("--details", help="Show tables, and each finding, not only the verdict.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how bf16 and other formats distort relative positions, and say what to do."""
    with progress_bar() as progress:
        found = precision(
            model,
            quick=quick,
            length=length,
            sequences=sequences,
            arms=None if arms is None else [name.strip() for name in arms.split(",")],
            shifts=None if shifts is None else _integers("--shifts", shifts),
            lengths=None if lengths is None else lengths.split(","),
            frozen=frozen,
            corpus=corpus,
            seed=seed,
            run=run,
            dtype=dtype,
            device=device,
            allow_download=allow_download,
            strict=strict,
            progress=progress,
            notice=notify,
        )
    if as_json:
        print_json(found)
        return
    _show(found, details)
    if run is not None:
        say(f"measurements, results and figures are in {run}")


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidValue(
            option, text, "is no list of whole numbers", "write them as 0,16,500"
        ) from None


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

    rows = table("arm", "D", "95%", "first token", "growth", "loss", "moved")
    for column in rows.columns[:3]:
        column.no_wrap = True
    for arm in found.arms:
        name = arm.arm if arm.weights == "given" else f"{arm.arm}, {arm.weights} weights"
        rows.add_row(
            name,
            f"{arm.strays.mean:.2g}",
            _interval(arm.strays),
            f"{arm.first_token_share.mean:.2%}",
            "–" if arm.growth is None else f"{arm.growth.mean:+.2f}",
            "–" if arm.loss is None else f"{arm.loss.mean:.4f}",
            "–" if arm.loss_change is None else f"{arm.loss_change.mean:.1e}",
        )
    console.print(rows)
    for name in dict.fromkeys(arm.arm for arm in found.arms):
        console.print(f"  {name}: {SUMMARIES[name]}", soft_wrap=True)
    share = found.arms[0].even_share
    console.print(
        f"D: Eq. 4 between shifts 0 and {found.reference}; first token: its share of D (even: "
        f"{share:.2%}); growth: the power of length that its logit difference follows; moved: how "
        f"far a shift moves the loss; {'; '.join(found.notes)}; 95% intervals by Student's t over "
        "sequences\n",
        soft_wrap=True,
    )


def _interval(value: Estimate) -> str:
    _, low, high = value
    return "" if low is None or high is None else f"{low:.2g}–{high:.2g}"
