"""`ropewalk precision`: what number formats do to a model's relative positions, and the remedy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.shared import (
    CorpusOption,
    DeviceOption,
    DownloadOption,
    JsonOption,
    RunnableModel,
    print_json,
    table,
)
from ropewalk.errors import InvalidValue
from ropewalk.lengths import format_length, parse_length

if TYPE_CHECKING:
    from ropewalk.models.load import LoadedModel
    from ropewalk.number_formats.results import Estimate, Precision
    from ropewalk.number_formats.runner import Settings

# The length of the article's sequences, where the model reaches so far.
LONGEST = 4096


def command(
    model: RunnableModel,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few shifts and sequences, no random weights.")
    ] = False,
    length: Annotated[
        int | None,
        typer.Option(
            metavar="LENGTH", parser=parse_length, help="Tokens a sequence; the model's window."
        ),
    ] = None,
    sequences: Annotated[
        int | None, typer.Option(help="How many; 50, or 4 with --quick, or what the text holds.")
    ] = None,
    arms: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Of fp64, fp32, bf16, bf16_tables, fp16 …")
    ] = None,
    shifts: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Values of Δ₁, 0 among them.")
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Where the growth with length is read.")
    ] = None,
    frozen: Annotated[
        bool,
        typer.Option("--frozen", help="Keep hidden states, so each layer shows its own error."),
    ] = False,
    corpus: CorpusOption = "held-out",
    seed: Annotated[int, typer.Option(help="Of random weights and retrieval samples.")] = 0,
    run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep records and figures here, and resume from here."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="How to load the model; arms choose their own formats.")
    ] = "float32",
    device: DeviceOption = "auto",
    allow_download: DownloadOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure what bf16 and other formats do to relative positions, and say what to do."""
    chosen_shifts = _integers("--shifts", shifts) if shifts is not None else None
    chosen_lengths = (
        tuple(sorted({parse_length(part) for part in lengths.split(",")}))
        if lengths is not None
        else None
    )
    chosen_arms = tuple(dict.fromkeys(a.strip() for a in arms.split(","))) if arms else None

    from ropewalk.data.corpora import read_documents
    from ropewalk.evaluation.encoding import Encoder
    from ropewalk.models.load import load
    from ropewalk.number_formats.arms import named
    from ropewalk.number_formats.runner import Measurement, stretches

    for name in chosen_arms or ():
        named(name)
    documents = list(read_documents(corpus))
    loaded = load(model, dtype=dtype, device=device, allow_download=allow_download)
    settings = _settings(
        loaded, quick, length, sequences, chosen_arms, chosen_shifts, chosen_lengths, frozen, seed
    )
    if sequences is None:
        held = sum(1 for _ in stretches(Encoder(loaded.tokenizer), documents, settings.length))
        settings = replace(settings, sequences=max(1, min(settings.sequences, held)))
    measurement = Measurement(model, loaded.model, loaded.tokenizer, documents, settings)
    with ExitStack() as stack:
        journal = directory = None
        if run is not None:
            from ropewalk.run_directory import RECORDS, RunDirectory

            directory = stack.enter_context(RunDirectory(run, "precision", measurement.identity()))
            journal = directory.journal(RECORDS)
        with _progress() as progress:
            found = measurement.run(journal, progress)
        if directory is not None:
            import json

            from ropewalk.reports.precision import draw_all

            directory.write("results.json", json.dumps(found.to_json(), indent=2) + "\n")
            draw_all(found, directory.path / "figures")
    if as_json:
        print_json(found.to_json())
    else:
        _show(found, loaded)
        if directory is not None:
            print(f"records, results and figures are in {directory.path}")


def _settings(
    loaded: LoadedModel,
    quick: bool,
    length: int | None,
    sequences: int | None,
    arms: tuple[str, ...] | None,
    shifts: tuple[int, ...] | None,
    lengths: tuple[int, ...] | None,
    frozen: bool,
    seed: int,
) -> Settings:
    from ropewalk.number_formats import runner
    from ropewalk.number_formats.weights import GIVEN, WEIGHTS

    longest = runner.QUICK_LENGTH if quick else LONGEST
    default_sequences = runner.QUICK_SEQUENCES if quick else runner.SEQUENCES
    length = length or min(loaded.present_plan.target_length, longest)
    lengths = lengths or tuple(n for n in runner.LENGTHS if n <= length) or (length,)
    return runner.Settings(
        length=length,
        arms=arms or runner.arms_for(loaded.model.device),
        weights=(GIVEN,) if quick else WEIGHTS,
        shifts=shifts or (runner.QUICK_SHIFTS if quick else runner.SHIFTS),
        lengths=lengths,
        sequences=default_sequences if sequences is None else sequences,
        mode="frozen" if frozen else "forward",
        anchored=not quick,
        retrieval_samples=8 if quick else 50,
        seed=seed,
    )


def _integers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise InvalidValue(
            option, text, "is no list of whole numbers", "write them as 0,16,500"
        ) from None


@contextmanager
def _progress() -> Iterator[Any]:
    """A bar on standard error, where somebody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("measuring"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("measuring", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show(found: Precision, loaded: LoadedModel) -> None:
    from rich.console import Console

    from ropewalk.number_formats.arms import SUMMARIES

    console = Console(highlight=False)
    console.print(
        f"[bold]{found.model}[/bold] on {loaded.device}, {found.sequences} sequences of "
        f"{format_length(found.length)} tokens, "
        + ("a full forward a shift" if found.mode == "forward" else "hidden states frozen"),
        soft_wrap=True,
    )
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
        f"far a shift moves the loss; {'; '.join(found.notes)}; 95% intervals by bootstrap over "
        "sequences\n",
        soft_wrap=True,
    )
    from ropewalk.number_formats.results import diagnosis

    for line in diagnosis(found):
        console.print(f"- {line}", soft_wrap=True, markup=False)


def _interval(value: Estimate) -> str:
    _, low, high = value
    return "" if low is None or high is None else f"{low:.2g}–{high:.2g}"
