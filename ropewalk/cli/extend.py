"""`ropewalk extend`: from a model and a length to exported files and the evidence, in one go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    CorpusOption,
    DeviceOption,
    DownloadOption,
    DtypeOption,
    FieldOption,
    JsonOption,
    RunnableModel,
    StrictOption,
    notify,
    print_json,
    say,
)
from ropewalk.pipeline.settings import BATCH, EVALUATIONS, LEARNING_RATE, SAMPLES

if TYPE_CHECKING:
    from ropewalk.cli.terminal import Terminal
    from ropewalk.pipeline.cost import Estimate
    from ropewalk.pipeline.stage import Stage
    from ropewalk.values import Result

WIDTH = 110
EXAMPLE = "ropewalk extend path/to/model --to 32k --run runs/extend"


def command(
    model: RunnableModel = "bundled",
    target: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="LENGTH",
            help="Target length, such as 32k (default: eight times what the model serves).",
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep everything here, and resume from here (default: runs/extend-MODEL-LENGTH).",
        ),
    ] = None,
    corpus: CorpusOption = "held-out",
    field: FieldOption = "text",
    evaluations: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Search budget, in evaluations of all documents to search on.",
        ),
    ] = EVALUATIONS,
    samples: Annotated[
        int, typer.Option(metavar="N", help="Samples for each task, length and method.")
    ] = SAMPLES,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…", help="Lengths to evaluate at (default: doublings of the window)."
        ),
    ] = None,
    train_steps: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Also train, so many steps, under the chosen schedule (default: no training).",
        ),
    ] = 0,
    train_corpus: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Text to train on, less what the evaluation reads (default: the search's).",
        ),
    ] = None,
    learning_rate: Annotated[
        float, typer.Option(metavar="RATE", help="Learning rate of the training.")
    ] = LEARNING_RATE,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, help="Windows of a training step.")
    ] = BATCH,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of documents and samples.")] = 0,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    allow_download: DownloadOption = False,
    strict: StrictOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the stages and what they would cost.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Extend a model: search, train if asked to, evaluate, export, verify. Resumable."""
    from ropewalk.api.extend import extend, extend_preview
    from ropewalk.cli.terminal import Terminal

    asked: dict[str, Any] = {
        "corpus": corpus,
        "field": field,
        "evaluations": evaluations,
        "samples": samples,
        "lengths": lengths.split(",") if lengths else [],
        "train_steps": train_steps,
        "train_corpus": train_corpus,
        "learning_rate": learning_rate,
        "batch": batch,
        "seed": seed,
        "dtype": dtype,
        "device": device,
        "allow_download": allow_download,
        "strict": strict,
        "notice": notify,
    }
    console = Terminal(sys.stderr if as_json else sys.stdout)
    if not console.is_terminal:
        console.width = WIDTH  # of the table of all methods
    if dry_run:
        estimate = extend_preview(model, target, **asked)
        if as_json:
            print_json(estimate)
        else:
            _show_cost(console, estimate)
        return
    with progress_bar() as progress:
        found = extend(
            model,
            target,
            run=run,
            **asked,
            progress=progress,
            done=lambda stage, result: _show_stage(console, stage, result),
        )
    if as_json:
        print_json(found)
    else:
        for line in (found.achieved, found.written, f"load it: {found.load}"):
            say(line)


def _show_cost(console: Terminal, estimate: Estimate) -> None:
    from rich.text import Text

    for row in estimate.stages:
        tokens = f"{row.tokens:,} tokens, " if row.tokens else ""
        cost = f"{tokens}{row.range}" if row.seconds_high else "quick"
        told = Text.assemble(f"{row.stage:>9}  {row.does} ", (f"({cost})", "dim"))
        console.print(told, soft_wrap=True)
    console.print(
        f"{estimate.total} in all, by forwards timed at {estimate.timed_at[0]:,} and "
        f"{estimate.timed_at[1]:,} tokens on this machine",
        soft_wrap=True,
    )


def _show_stage(console: Terminal, stage: Stage[Any], result: Result) -> None:
    from ropewalk.cli.terminal import headed
    from ropewalk.pipeline.results import Evaluated

    console.print(headed(stage.name, f"  {result.summary()}"), soft_wrap=True)
    if isinstance(result, Evaluated):
        from ropewalk.cli.evaluate import show_results

        show_results(console, result.results)
