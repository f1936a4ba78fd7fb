"""`ropewalk verify`: what a folder or a GGUF file on disk will really do in each runtime."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from ropewalk.api.verify import verify
from ropewalk.audit.finding import TOLERANCE, Finding
from ropewalk.audit.reading import Reading
from ropewalk.audit.result import Audit
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import JsonOption, StrictOption, print_json
from ropewalk.lengths import format_length, parse_length

EXAMPLE = "ropewalk verify extended --plan plan.json"


def command(
    model: Annotated[
        str, typer.Argument(metavar="OUT", help="A transformers folder or a GGUF file.")
    ],
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The plan that it should follow (default: its own settings)."
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            metavar="LENGTH",
            parser=parse_length,
            help="The length that it should serve, such as 128k (default: its own).",
        ),
    ] = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge by this runtime alone: transformers, vllm, sglang, llama.cpp (after its "
            "own converter), transformers-4, vllm-2025. Repeatable (default: the first three)."
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option(help="Run the model where its weights and its runtime are here.")
    ] = True,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Examine an exported model, also one made by others, for what would silently go wrong."""
    with progress_bar() as progress:
        found = verify(
            model,
            plan=plan,
            length=length,
            runtimes=tuple(runtime or ()),
            run=run,
            strict=strict,
            progress=progress,
        )
    if as_json:
        print_json(found)
    else:
        _show(found)
    if not found.passed:
        raise typer.Exit(1)


def _show(found: Audit) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    console.print(
        f"[bold]{escape(str(found.path))}[/bold]: {found.target}, "
        f"asked for {format_length(found.length)}",
        soft_wrap=True,
    )
    for reading in found.runtimes.values():
        console.print(f"  {escape(_in_words(reading))}", soft_wrap=True)
    if found.parity is not None:
        console.print(f"  run in {found.parity.runtime}: {found.parity}", soft_wrap=True)
    for note in found.notes:
        console.print(f"  {escape(note)}", soft_wrap=True)
    for finding in found.warnings:
        console.print()
        console.print(escape(_told(finding)), soft_wrap=True)
    console.print()
    colour = "red" if found.wrong else "green" if found.compared else "default"
    console.print(f"[{colour}]{escape(found.verdict)}[/{colour}]", soft_wrap=True)


def _in_words(reading: Reading) -> str:
    start = f"{reading.runtime} ({reading.source}): "
    if reading.refused:
        return f"{start}does not load: {reading.refused}"
    if reading.unread:
        return f"{start}unknown: {reading.unread}"
    parts = []
    for layer_type, steps in reading.layers.items():
        longest = steps[-1]
        period = longest.slowest_period
        turns = "some do not turn" if math.isinf(period) else f"slowest period {period:,.0f}"
        parts.append(f"{layer_type}: {longest.inverse_frequencies.size} pairs, {turns}")
        if abs(longest.attention_scaling - 1) > TOLERANCE:
            parts[-1] += f", cos and sin times {longest.attention_scaling:.6g}"
    if reading.switches != "never":
        parts.append(f"factors change {reading.switches}")
    if reading.limit is not None:
        parts.append(f"accepts up to {format_length(reading.limit)}")
    return start + "; ".join([*parts, *reading.notes])


def _told(finding: Finding) -> str:
    where = f" ({', '.join(finding.runtimes)})" if finding.runtimes else ""
    mark = "wrong" if finding.wrong else "note"
    lines = [f"{mark}: {finding.trap}{where}"]
    lines += textwrap.wrap(f"{finding.what}: {finding.consequence}.", 96, break_long_words=False)
    lines += textwrap.wrap(f"What to do: {finding.remedy}.", 96, break_long_words=False)
    return lines[0] + "".join(f"\n  {line}" for line in lines[1:])
