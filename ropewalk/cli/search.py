"""`ropewalk search`: the rescale factors that score best on the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ropewalk.cli.help import ADVANCED
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    CorpusOption,
    DeviceOption,
    DownloadOption,
    DtypeOption,
    FieldOption,
    JsonOption,
    OverwriteOption,
    RunnableModel,
    StrictOption,
    check_outputs,
    notify,
    print_json,
    show_written,
    table,
    write_plan,
)
from ropewalk.lengths import format_length
from ropewalk.outputs import STANDARD_OUTPUT

if TYPE_CHECKING:
    from ropewalk.api.search import Searched
    from ropewalk.cli.terminal import Terminal
    from ropewalk.searching.model.results import Leg, Score

EXAMPLE = "ropewalk search path/to/model --to 32k --run runs/search"


def command(
    model: RunnableModel,
    target: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="LENGTH",
            help="Target length, such as 32768 or 32k.",
        ),
    ],
    corpus: CorpusOption = "held-out",
    field: FieldOption = "text",
    strategy: Annotated[
        Literal["adaptive", "gradient", "evolution"],
        typer.Option(
            help="A search by losses alone; a few dozen backward passes; or LongRoPE's algorithm "
            "in ropewalk's space.",
            rich_help_panel=ADVANCED,
        ),
    ] = "adaptive",
    budget: Annotated[
        int | None,
        typer.Option(
            metavar="EVALUATIONS",
            min=1,
            help="Search budget in evaluations of all documents (default: the strategy's own).",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Search budget in tokens (default: no limit).",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    objective: Annotated[
        Literal["perplexity", "needle", "mixed"],
        typer.Option(
            help="Minimise the loss on the text, on the answers, or on both.",
            rich_help_panel=ADVANCED,
        ),
    ] = "mixed",
    stock_runtimes: Annotated[
        bool,
        typer.Option(
            "--stock-runtimes/--no-stock-runtimes",
            help="Search only schedules that stock runtimes can express.",
            rich_help_panel=ADVANCED,
        ),
    ] = True,
    as_published: Annotated[
        bool,
        typer.Option(
            "--as-published",
            help="Run LongRoPE's search as published: its objective, documents, space and sizes.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    keep_short: Annotated[
        bool,
        typer.Option(
            "--keep-short",
            help="With the strategy gradient: also minimise the loss at the original length.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    fold_query_scale: Annotated[
        bool,
        typer.Option(
            "--fold-query-scale",
            help="Also tune weights: a scale for each query head and pair, folded in by export.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    recover: Annotated[
        bool,
        typer.Option(
            "--recover",
            help="Also search factors for sequences within the original context length.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep plan, journal and figures here, and resume from here (default: "
            "runs/search-MODEL-LENGTH).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the plan here too; - prints it alone.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of the documents and of the search.")
    ] = 0,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    ranks_per_copy: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Under torchrun: how many ranks hold one copy of the model.",
            rich_help_panel=ADVANCED,
        ),
    ] = 1,
    overwrite: OverwriteOption = False,
    allow_download: DownloadOption = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search the rescale factors for a longer context, by perplexity and retrieval together."""
    from ropewalk.api.common import as_length
    from ropewalk.api.search import search
    from ropewalk.context_plan import PLAN
    from ropewalk.models.source import resolve
    from ropewalk.torchrun import first

    source = resolve(model, allow_download=allow_download)
    check_outputs(output=output, sources=source.places, overwrite=overwrite, as_json=as_json)
    length = format_length(as_length(target, "to"))
    run = run or Path("runs") / f"search-{source.short_name}-{length}"
    with progress_bar() as progress:
        found = search(
            model,
            target,
            corpus=corpus,
            field=field,
            strategy=strategy,
            evaluations=budget,
            tokens=tokens,
            objective=objective,
            stock_runtimes=stock_runtimes,
            recover=recover,
            as_published=as_published,
            keep_short=keep_short,
            fold_query_scale=fold_query_scale,
            seed=seed,
            run=run,
            dtype=dtype,
            device=device,
            ranks_per_copy=ranks_per_copy,
            allow_download=allow_download,
            strict=strict,
            progress=progress,
            notice=notify,
        )
    if not first():
        return
    write_plan(found.plan, output)
    if as_json:
        print_json(found)
    elif output != STANDARD_OUTPUT:
        _show(found)
    show_written(output, run / PLAN, as_json=as_json)


def _show(found: Searched) -> None:
    from ropewalk.cli.terminal import Terminal, headed

    console = Terminal()
    console.print(headed(found.model, f", {found.dtype} on {found.device}"))
    for leg in found.legs:
        _show_leg(console, leg)
    if found.query_tuning is not None:
        console.print(found.query_tuning.summary(), soft_wrap=True)
    console.print(
        f"{sum(leg.evaluations for leg in found.legs):,.1f} evaluations, "
        f"{sum(leg.tokens for leg in found.legs):,} tokens, {found.seconds:,.0f} s"
    )


def _show_leg(console: Terminal, leg: Leg) -> None:
    from rich.text import Text

    from ropewalk.searching.model.results import (
        bounds_in_words,
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
    console.print(rows)
    if leg.method is not None:
        beaten = f"search did not beat {leg.best_hand_designed}: {tried_in_words(leg)}"
        console.print(beaten, soft_wrap=True)
    if leg.held_out is not None:
        console.print(verdict_in_words(leg), soft_wrap=True)
    if leg.cost_at_original_length is not None:
        console.print(short_in_words(leg), soft_wrap=True)
    if leg.at_bounds:
        console.print(bounds_in_words(leg), soft_wrap=True)
    if leg.method is None:
        console.print(
            f"score of {leg.best_hand_designed} minus that of the search: "
            f"{leg.gain('reporting'):+.4f} on held-out documents, {leg.gain('search'):+.4f} on "
            "those of the search; the excess of the second is overfitting and chance",
            soft_wrap=True,
        )


def _cells(score: Score) -> tuple[str, str, str]:
    return (
        _number(score.score, 4),
        _number(score.perplexity, 2),
        f"{score.retrieval:.1%}",
    )


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value < float("inf") else "failed"
