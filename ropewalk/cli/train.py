"""`ropewalk train`: continued training at a longer context, with a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ropewalk.cli.data_build import by_domain
from ropewalk.cli.data_describe import shares_of
from ropewalk.cli.help import ADVANCED
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    DeviceOption,
    DownloadOption,
    FieldOption,
    JsonOption,
    PlansOption,
    RunnableModel,
    StrictOption,
    notify,
    print_json,
    say,
    table,
)
from ropewalk.errors import InputError, InvalidValue
from ropewalk.lengths import format_length

if TYPE_CHECKING:
    from ropewalk.api.train import Trained, TrainPreview

EXAMPLE = "ropewalk train path/to/model --recipe anchor --to 32k --corpus books.jsonl"
SEQUENCE_HELP = "Under torchrun: ranks that share each window, by stretches of it (Ulysses)."


def command(
    model: RunnableModel,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[DOMAIN=]FILE",
            help="Text to train on: a file, a folder, .jsonl, .parquet, `python`, or a folder of "
            "`ropewalk data build`; with the name of its domain where there are several. "
            "Repeatable.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="LENGTH", help="Target length, such as 32k (default: the plan's)."
        ),
    ] = None,
    plan: PlansOption = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Plan by a method of `ropewalk methods`, or by `search` (default: the recipe's, "
            "or what `ropewalk plan --after-training` ranks first).",
        ),
    ] = None,
    recipe: Annotated[
        Literal["anchor", "longrope-llama", "longrope-mistral", "base-bound"] | None,
        typer.Option(help="A paper's values for all that is not given."),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]", help="Steps, for all stages or for each (default: the recipe's)."
        ),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Train at these lengths in turn; each stage's plan composes on the one before.",
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep everything here, and resume from here (default: runs/train-MODEL-LENGTH).",
        ),
    ] = None,
    layout: Annotated[
        Literal["full", "bookends", "intra", "reset", "anchor", "interleaved", "skip"] | None,
        typer.Option(help="How windows are made of documents (default: the recipe's, or anchor)."),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Windows of a step, over all ranks (default: the recipe's, or 8).",
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Learning rate (default: the recipe's, or 2e-5)."),
    ] = None,
    lora: Annotated[
        int | None,
        typer.Option(
            metavar="RANK",
            min=1,
            help="Train adapters of this rank instead of the weights; the export has them merged.",
        ),
    ] = None,
    from_config: Annotated[
        bool,
        typer.Option("--from-config", help="Start from random weights for the model's config."),
    ] = False,
    decay: Annotated[
        Literal["constant", "linear", "cosine"] | None,
        typer.Option(
            help="Learning-rate schedule after the warm-up (default: the recipe's, or constant).",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    warmup: Annotated[
        int,
        typer.Option(
            metavar="STEPS",
            min=0,
            help="Steps over which the learning rate rises to its value.",
            rich_help_panel=ADVANCED,
        ),
    ] = 0,
    weight_decay: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Weight decay of AdamW (default: the recipe's, or 0.1).",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Tokens of a window (default: the length of the stage, or the recipe's).",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    mixed_windows: Annotated[
        bool,
        typer.Option(
            "--mixed-windows",
            help="Every other step reads windows of the original length, under the original "
            "frequencies.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    search_between: Annotated[
        bool,
        typer.Option(
            "--search-between",
            help="Search the schedule of each stage after the first, on the model so far.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    search_corpus: Annotated[
        str,
        typer.Option(metavar="FILE", help="Text of searches.", rich_help_panel=ADVANCED),
    ] = "held-out",
    evaluations: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Budget of each search in evaluations (default: the strategy's own).",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOMAIN=SHARE",
            help="The share of a domain in the tokens that are read; repeatable.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    long_share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="The share of long documents in the tokens of each domain.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    long_from: Annotated[
        str,
        typer.Option(
            metavar="LENGTH",
            help="From how many tokens on a document counts as long.",
            rich_help_panel=ADVANCED,
        ),
    ] = "4k",
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="With --from-config: the model whose tokenizer to use (default: MODEL's own).",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    sequence_parallel: Annotated[
        int,
        typer.Option(metavar="N", min=1, help=SEQUENCE_HELP, rich_help_panel=ADVANCED),
    ] = 1,
    replicate: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Under torchrun: copies of the weights; the other ranks share each copy.",
            rich_help_panel=ADVANCED,
        ),
    ] = 1,
    windows_at_once: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Windows that a rank computes at the same time.",
            rich_help_panel=ADVANCED,
        ),
    ] = 1,
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute",
            help="Compute activations again in the backward pass, which saves memory.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    save_every: Annotated[
        int,
        typer.Option(
            metavar="STEPS",
            min=1,
            help="Steps between checkpoints.",
            rich_help_panel=ADVANCED,
        ),
    ] = 100,
    report_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also log to tensorboard or wandb, as transformers.Trainer does; repeatable.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    field: FieldOption = "text",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of windows and of training.")] = 0,
    dtype: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="Number format in which weights are trained and written: float32 or bfloat16; "
            "auto trains in float32, with bfloat16 products on an accelerator, and writes the "
            "model's own format.",
        ),
    ] = "auto",
    device: DeviceOption = "auto",
    allow_download: DownloadOption = False,
    strict: StrictOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be trained, and its cost.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model further at a longer context, and export it with its plan. Resumable."""
    from ropewalk.api.train import train, train_preview

    texts, store = _text_or_tokens(corpus or [])
    asked: dict[str, Any] = {
        "corpus": texts,
        "data": store,
        "to": target,
        "plan": plan or None,
        "method": method,
        "recipe": recipe,
        "stages": stages.split(",") if stages else None,
        "steps": _whole_numbers(steps),
        "window": window,
        "layout": layout,
        "batch": batch,
        "learning_rate": learning_rate,
        "decay": decay,
        "warmup": warmup,
        "weight_decay": weight_decay,
        "shares": shares_of(share or []) or None,
        "long_from": long_from,
        "long_share": long_share,
        "mixed_windows": mixed_windows,
        "lora": lora,
        "from_config": from_config,
        "tokenizer": tokenizer,
        "search_between": search_between,
        "search_corpus": search_corpus,
        "evaluations": evaluations,
        "field": field,
        "seed": seed,
        "dtype": dtype,
        "device": device,
        "sequence_parallel": sequence_parallel,
        "replicate": replicate,
        "windows_at_once": windows_at_once,
        "recompute": recompute,
        "save_every": save_every,
        "report_to": report_to or [],
        "allow_download": allow_download,
        "strict": strict,
    }
    if dry_run:
        preview = train_preview(model, **asked, run=run, notice=notify)
        if as_json:
            print_json(preview)
        else:
            _show_preview(preview)
        return
    with progress_bar() as progress:
        found = train(model, **asked, run=run, progress=progress, notice=notify)
    from ropewalk.torchrun import first

    if not first():
        return
    if as_json:
        print_json(found)
    else:
        _show(found)


def _text_or_tokens(given: list[str]) -> tuple[dict[str, str] | None, str | None]:
    """Text by domain, or the folder of tokens, which stands alone."""
    from ropewalk.data.store import MANIFEST

    if not given:
        raise InputError("give text to train on, or a folder of tokens (`corpus`)")
    stores = [each for each in given if (Path(each) / MANIFEST).is_file()]
    if stores and len(given) > 1:
        raise InvalidValue(
            "corpus",
            stores[0],
            "is a folder of tokens, which cannot be joined with other text",
            "give it alone, or build one folder of all corpora",
        )
    return (None, stores[0]) if stores else (by_domain(given) or None, None)


def _whole_numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise InvalidValue("steps", text, "must be whole numbers", "write 400,600") from None


def _show(found: Trained) -> None:
    from ropewalk.cli.terminal import Terminal, headed
    from ropewalk.training.results import FIRST

    console = Terminal()
    console.print(headed(found.model, f", {found.tokens:,} tokens"))
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
    console.print(rows)
    say(found.exported.summary())
    for warning in found.exported.warnings:
        say(f"  {warning}")
    if found.adapter is not None:
        say(f"the adapter alone: {found.adapter}")
    count = len(found.kept)
    say(f"the last checkpoints: ropewalk evaluate {found.run}/evaluate --checkpoints {count}")
    say(f"load it: {found.exported.load}")


def _show_preview(preview: TrainPreview) -> None:
    from ropewalk.cli.terminal import Terminal

    console = Terminal()
    rows = table("length", "steps", "windows of", "tokens", "epochs", "PFLOP", "method")
    for stage in preview.stages:
        rows.add_row(
            format_length(stage.length),
            f"{stage.steps:,}",
            format_length(stage.window),
            f"{stage.tokens:,}",
            "unknown" if stage.epochs is None else f"{stage.epochs:.2f}",
            f"{stage.petaflops:,.3g}",
            stage.method,
        )
    console.print(rows)
    say(preview.summary())
