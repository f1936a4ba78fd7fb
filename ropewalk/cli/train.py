"""`ropewalk train`: continued training at a longer context, with a plan."""

from __future__ import annotations

from ropewalk.api.train import TrainPreview, train
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import DryRunOption, JsonOption, console, say, show_result, table
from ropewalk.costs.estimates import duration
from ropewalk.lengths import format_length
from ropewalk.training.results import FIRST, Trained

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
        show_result(call.preview(), _show_preview, as_json=as_json)
    else:
        show_result(call(), _show, as_json=as_json)


def _show(found: Trained) -> None:
    terminal = console(found.model, f", {found.tokens:,} tokens")
    most = min(FIRST, max(len(stage.steps) for stage in found.stages))
    heads = (f"loss, first {most} steps", f"loss, last {most} steps")
    rows = table("length", "steps", "windows of", "epochs", *heads, "plan")
    for stage in found.stages:
        rows.add_row(
            format_length(stage.length),
            f"{len(stage.steps):,}",
            format_length(stage.window),
            f"{stage.epochs:.2f}",
            f"{stage.loss_first:.4f}",
            f"{stage.loss_last:.4f}",
            stage.method,
        )
    terminal.print(rows)
    say(found.exported.summary())
    for warning in found.exported.warnings:
        say(f"  {warning}")
    if found.adapter is not None:
        say(f"the adapter alone: {found.adapter}")
    count = len(found.kept)
    say(f"the last checkpoints: ropewalk evaluate {found.run}/evaluate --checkpoints {count}")
    say(f"load it: {found.exported.load}")


def _show_preview(preview: TrainPreview) -> None:
    terminal = console()
    rows = table("length", "steps", "windows of", "tokens", "epochs", "PFLOP", "time", "method")
    for stage in preview.stages:
        rows.add_row(
            format_length(stage.length),
            f"{stage.steps:,}",
            format_length(stage.window),
            f"{stage.tokens:,}",
            "unknown" if stage.epochs is None else f"{stage.epochs:.2f}",
            f"{stage.petaflops:,.3g}",
            duration(stage.seconds),
            stage.method,
        )
    terminal.print(rows)
    say(preview.summary())
