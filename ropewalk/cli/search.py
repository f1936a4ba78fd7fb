"""`ropewalk search`: the rescale factors that a model itself does best under."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ropewalk.cli.shared import (
    CorpusOption,
    DeviceOption,
    DownloadOption,
    DtypeOption,
    FieldOption,
    JsonOption,
    RunnableModel,
    corpus_documents,
    print_json,
    table,
)
from ropewalk.errors import InvalidValue
from ropewalk.lengths import format_length, parse_length
from ropewalk.run_directory import RunDirectory, write_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.data.corpora import Document
    from ropewalk.models.load import LoadedModel
    from ropewalk.reports.search import SearchCurve
    from ropewalk.searching.model.legs import Found, Leg, Score, Settings, Status
    from ropewalk.searching.model.ranks import Ranks

PLAN = "plan.json"


def command(
    model: RunnableModel,
    target: Annotated[
        int,
        typer.Option("--to", metavar="LENGTH", parser=parse_length, help="Such as 32768 or 32k."),
    ],
    corpus: CorpusOption = "held-out",
    field: FieldOption = "text",
    strategy: Annotated[
        Literal["adaptive", "evolution"],
        typer.Option(help="Ours, or LongRoPE's algorithm as published."),
    ] = "adaptive",
    budget: Annotated[
        int | None,
        typer.Option(metavar="EVALUATIONS", min=1, help="Scores over all documents to spend."),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tokens to spend, instead or besides.")
    ] = None,
    objective: Annotated[
        Literal["perplexity", "needle", "mixed"],
        typer.Option(help="What is minimised: the text's loss, that of the answers, or both."),
    ] = "mixed",
    stock_runtimes: Annotated[
        bool,
        typer.Option(
            "--stock-runtimes/--no-stock-runtimes",
            help="Keep to what stock runtimes can express: no kept initial positions.",
        ),
    ] = True,
    recover: Annotated[
        bool,
        typer.Option("--recover", help="Also search factors for sequences as short as trained on."),
    ] = False,
    run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the plan, the journal and figures, and resume."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan here.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Other documents and another search.")] = 0,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    ranks_per_copy: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Under torchrun: how many ranks hold one copy of the model."
        ),
    ] = 1,
    allow_download: DownloadOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search the rescale factors for a longer context, by perplexity and retrieval together."""
    from ropewalk.models.load import load, whole
    from ropewalk.searching.model.legs import Settings, check_target, search_model

    settings = Settings(
        target_length=target,
        strategy=strategy,
        objective=objective,
        evaluations=budget,
        tokens=tokens,
        stock_runtimes=stock_runtimes,
        recover=recover,
        seed=seed,
    )
    ranks = _ranks(ranks_per_copy)
    with ExitStack() as stack:
        if ranks is not None:
            stack.enter_context(ranks)
        documents = corpus_documents(corpus, field)
        loaded = load(
            model,
            dtype=dtype,
            device=_own(device),
            allow_download=allow_download,
            place=whole if ranks is None else ranks.place,
        )
        check_target(loaded.present_plan.longest(loaded.present_plan.extended_layer), settings)
        # On every rank: reading shared weights takes all that share them.
        configuration = {} if run is None else _configuration(loaded, documents, settings)
        if ranks is not None and ranks.rank > 0:
            search_model(loaded, documents, settings, ranks=ranks)
            return
        directory = None
        if run is not None:
            directory = stack.enter_context(RunDirectory(run, "search", configuration))
        show = stack.enter_context(_live(as_lines=not sys.stderr.isatty()))
        found = search_model(
            loaded,
            documents,
            settings,
            journal=(lambda name: None) if directory is None else directory.journal,
            ranks=ranks,
            progress=show,
            notice=lambda text: print(text, file=sys.stderr),
        )
        assert found is not None, "rank 0 searches"
        if directory is not None:
            _keep(found, directory)
    if output is not None or directory is None:
        output = output or Path(PLAN)
        write_atomically(output, found.plan.dumps())
    if as_json:
        print_json(found.to_json())
    else:
        _show(model, loaded, found)
        print(f"wrote {output or run / PLAN if run else output}")


def _ranks(per_copy: int) -> Ranks | None:
    """All that torchrun started; None for a process alone."""
    from ropewalk.searching.model.ranks import Ranks

    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size % per_copy:
        raise InvalidValue(
            "--ranks-per-copy",
            per_copy,
            f"the number of ranks must be a multiple of it, and is {size}",
            f"start so many: torchrun --nproc-per-node {per_copy} -m -- ropewalk search …",
        )
    return Ranks.of_environment(per_copy) if size > 1 else None


def _own(device: str) -> str:
    """Under torchrun, each rank takes the GPU of its number."""
    if device in ("auto", "cuda") and "LOCAL_RANK" in os.environ:
        import torch

        if torch.cuda.is_available():
            return f"cuda:{os.environ['LOCAL_RANK']}"
    return device


def _configuration(
    loaded: LoadedModel, documents: list[Document], settings: Settings
) -> dict[str, object]:
    """All that decides the numbers; not how many ranks compute them."""
    from ropewalk.evaluation.identity import run_identity

    return {**run_identity(loaded, documents), **settings.to_json()}


def _keep(found: Found, directory: RunDirectory) -> None:
    """The plan, the scores and the figures of a finished search."""
    from ropewalk.reports.search import draw_all

    directory.write(PLAN, found.plan.dumps())
    legs = {"legs": [leg.to_json() for leg in found.legs]}
    directory.write("results.json", json.dumps(legs, indent=2) + "\n")
    figures = directory.path / "figures"
    figures.mkdir(exist_ok=True)
    for leg in found.legs:
        schedules = {name: arm.schedule for name, arm in leg.baselines.items()}
        prefix = "" if len(found.legs) == 1 else f"{format_length(leg.length)}-"
        draw_all({"chosen": leg.chosen.schedule, **schedules}, _curve(leg), figures, prefix)


def _curve(leg: Leg) -> SearchCurve:
    from ropewalk.reports.search import SearchCurve

    return SearchCurve(
        [point.tokens for point in leg.history],
        [point.score for point in leg.history],
        {name: arm.search.score for name, arm in leg.baselines.items()},
    )


@contextmanager
def _live(*, as_lines: bool) -> Iterator[Callable[[Status], None]]:
    """One line that lives on standard error: the best so far beside the best by hand."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=as_lines,
    ) as bar:
        task = bar.add_task("loading", total=1.0, detail="")
        stage = ""

        def show(status: Status) -> None:
            nonlocal stage
            if status.stage != stage:  # the time left is that of the stage
                stage = status.stage
                bar.reset(task, description=stage, detail="")
            bar.update(task, completed=status.done, detail=_detail(status))

        yield show


def _detail(status: Status) -> str:
    if status.best is None:
        return ""
    best = f"best {status.best:.3f}"
    if status.baselines:
        name = min(status.baselines, key=lambda name: status.baselines[name])
        best += f" ({name} {status.baselines[name]:.3f})"
    return f"{best}  {status.evaluations:,.0f} evaluations  {status.tokens / 1000:,.0f}k tokens"


def _show(model: str, loaded: LoadedModel, found: Found) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"[bold]{model}[/bold], {loaded.dtype} on {loaded.device}")
    for leg in found.legs:
        _show_leg(console, leg)
    console.print(
        f"{sum(leg.evaluations for leg in found.legs):,.1f} evaluations, "
        f"{sum(leg.tokens for leg in found.legs):,} tokens, {found.seconds:,.0f} s"
    )


def _show_leg(console: Console, leg: Leg) -> None:
    rows = table(
        f"to {format_length(leg.length)}, held out", "score", "perplexity", "retrieval", "searched"
    )
    for name, arm in leg.baselines.items():
        rows.add_row(name, *_cells(arm.reporting), _number(arm.search.score, 4))
    rows.add_row(
        "[bold]search[/bold]" if leg.method is None else f"[bold]chosen: {leg.method}[/bold]",
        *_cells(leg.chosen.reporting),
        _number(leg.chosen.search.score, 4),
    )
    console.print(rows)
    if leg.method is None:
        console.print(
            f"score of {leg.best_by_hand} less that of the search: {leg.gain('reporting'):+.4f} on "
            f"documents that decided nothing, {leg.gain('search'):+.4f} on those of the search; "
            "what the second has more is learnt by heart",
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
