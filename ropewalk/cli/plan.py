"""`ropewalk plan`: a schedule for a longer context, from a model's config alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.api.common import serves_already
from ropewalk.api.plan import Planned, plan
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    DownloadOption,
    JsonOption,
    ModelArgument,
    StrictOption,
    notify,
    pair_rows,
    print_json,
    show_steps,
    show_written,
    table,
)
from ropewalk.errors import InputError
from ropewalk.exporting.features import RUNTIMES
from ropewalk.lengths import format_length, parse_length
from ropewalk.planning.extension import parse_settings
from ropewalk.run_directory import write_atomically
from ropewalk.schedule import LogNForm

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.api.compare_methods import Comparison
    from ropewalk.exporting.serving import Serving

BEST_PLAN = Path("plan.json")
EXAMPLE = "ropewalk plan llama-3-8b --to 32k --method yarn -o plan.json"


def command(
    model: ModelArgument,
    target: Annotated[
        int,
        typer.Option(
            "--to",
            metavar="LENGTH",
            parser=parse_length,
            help="Target length, such as 32768 or 32k.",
        ),
    ],
    method: Annotated[
        str | None,
        typer.Option(
            help="A method of `ropewalk methods`, or several: yarn+resonance. "
            "Without one, all are compared and the best by theory is written to plan.json."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the method; repeatable."),
    ] = None,
    log_n: Annotated[
        LogNForm | None, typer.Option(help="Scale queries by log n: everywhere, or only beyond.")
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(help="Layer types to change; others keep their schedule. Repeatable."),
    ] = None,
    from_original: Annotated[
        bool, typer.Option("--from-original", help="Forget the model's present scaling.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan here.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the factors, as .png or .svg.")
    ] = None,
    allow_download: DownloadOption = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan a longer context: the factors of a method, ready for a runtime's config."""
    from ropewalk.models.source import resolve

    found: Planned | Comparison
    if method is None and (settings or log_n):
        raise InputError("--set and --log-n go with a --method")
    source = resolve(model, allow_download=allow_download)
    with progress_bar() as progress:
        if method is None and (from_original or target != source.present_plan.target_length):
            from ropewalk.api.compare_methods import compare_methods

            found = compare_methods(
                *(source, target),
                layers=layers,
                from_original=from_original,
                strict=strict,
                progress=progress,
                notice=notify,
            )
            output = output or BEST_PLAN
        else:
            found = plan(
                source,
                target,
                method,
                parameters=parse_settings(method, settings or ()) if method else None,
                log_n=log_n,
                layers=layers,
                from_original=from_original,
                strict=strict,
                progress=progress,
                notice=notify,
            )
    if output is not None:
        write_atomically(output, found.plan.dumps())
    if plot is not None:
        from ropewalk.reports.figures import save

        save(found.figure(), plot)
    if as_json:
        print_json(found)
    elif isinstance(found, Planned):
        _show_plan(found, saved=output is not None)
    else:
        _show_comparison(found)
    show_written(output, plot, as_json=as_json)


def _show_plan(found: Planned, *, saved: bool) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    before, after = found.present.longest(found.layers[0]), found.schedule
    target = found.plan.target_length
    if target == found.present.target_length:
        _show_serves_already(console, found)
    if not found.nothing_to_change:
        console.print(
            f"[bold]{escape(found.model)}[/bold]: {format_length(before.length)} to "
            f"{format_length(target)} by {after.method}",
            soft_wrap=True,
        )
        show_steps(console, found.plan)
        pairs = table("pair", "wavelength now", "planned", "factor now", "planned")
        for i in pair_rows(after.geometry.pairs):
            pairs.add_row(
                str(i),
                f"{before.wavelengths[i]:,.2f}",
                f"{after.wavelengths[i]:,.2f}",
                f"{before.rescale_factors[i]:.4f}",
                f"{after.rescale_factors[i]:.4f}",
            )
        console.print()
        console.print(pairs)
        if found.rope_parameters is None:
            refused = f"no stock config says this: {found.rope_parameters_refused}"
            console.print(refused, markup=False, soft_wrap=True)
    _show_serving(console, found.serving, saved=saved)


def _show_serves_already(console: Console, found: Planned | Comparison) -> None:
    told = serves_already(found.present, found.trained_length)
    console.print(told, style="bold", markup=False, soft_wrap=True)


def _show_serving(console: Console, rows: Sequence[Serving], *, saved: bool) -> None:
    """The lines to paste, whole: a terminal may wrap them, a copy must not."""
    console.print("\nTo serve it:")
    for row in rows:
        console.print(f"\n# {row.runtime}: {row.fit}. {row.reason}", markup=False, soft_wrap=True)
        for line in row.lines:
            console.print(line, markup=False, soft_wrap=True)
    if not saved and any(str(BEST_PLAN) in line for row in rows for line in row.lines):
        console.print(f"\n# {BEST_PLAN} is this plan: add -o {BEST_PLAN} to write it")


def _show_comparison(found: Comparison) -> None:
    from rich.console import Console
    from rich.markup import escape

    target = format_length(found.target_length)
    rows = table("method", "effective length", "below 0", "new angles", "fast pairs", "loads in")
    for candidate in found.candidates:
        effective, pairs = candidate.effective_length, candidate.schedule.geometry.pairs
        rows.add_row(
            candidate.method,
            f"all {target}" if effective is None else f"{effective:,}",
            f"{candidate.violations:,}",
            f"{candidate.out_of_distribution_pairs}/{pairs} pairs",
            f"×{candidate.fast_stretch:.3g}",
            _loads_in(candidate.runtimes),
        )
    console = Console(highlight=False)
    console.print(f"[bold]{escape(found.model)}[/bold] to {target}, by theory", soft_wrap=True)
    console.print(rows)
    for candidate in found.candidates:
        given = ", ".join(f"{key} {value:,}" for key, value in candidate.parameters.items())
        name = f"{candidate.method} ({given})" if given else candidate.method
        console.print(f"  [bold]{name}[/bold]: {candidate.reason}", soft_wrap=True)
    for method, reason in found.refused.items():
        line = f"  {method} is not among them: {reason}"
        console.print(line, style="dim", markup=False, soft_wrap=True)
    console.print(f"\nBest by theory: {found.best.method}; evaluation has the last word.")
    _show_serving(console, found.serving, saved=True)


def _loads_in(runtimes: tuple[str, ...] | None) -> str:
    if runtimes is None:
        return "unknown"
    missing = [runtime for runtime in RUNTIMES if runtime not in runtimes]
    if not runtimes:
        return "ropewalk only"
    if len(runtimes) == 1:
        return f"{runtimes[0]} only"
    return f"all but {', '.join(missing)}" if missing else "all runtimes"
