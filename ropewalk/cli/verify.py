"""`ropewalk verify`: what a folder or a GGUF file on disk will really do in each runtime."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.shared import JsonOption, print_json
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError
from ropewalk.lengths import format_length, parse_length

if TYPE_CHECKING:
    from ropewalk.audit.examination import Audit
    from ropewalk.audit.finding import Finding
    from ropewalk.audit.reading import Reading


def command(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A transformers folder or a GGUF file.")
    ],
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The plan that it should follow.")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            metavar="LENGTH",
            parser=parse_length,
            help="The length that it should serve, such as 128k; else its own.",
        ),
    ] = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge by this runtime alone: transformers, vllm, sglang, llama.cpp (after its "
            "own converter), transformers-4, vllm-2025. Repeatable; else by the first three."
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option(help="Run the model where its weights and its runtime are here.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Examine an exported model, also one made by others, for what would silently go wrong."""
    from ropewalk.audit.examination import audit

    if plan is not None and length is not None:
        raise InputError("--plan and --length: a plan states its own length; give one of the two")
    wanted = None if plan is None else ContextPlan.read(plan)
    found = audit(out, plan=wanted, length=length, runtimes=runtime or (), run=run)
    if as_json:
        print_json(_json(found))
    else:
        _show(found)
    if not found.passed:
        raise typer.Exit(1)


def _json(found: Audit) -> dict[str, object]:
    return {
        "target": found.target,
        "path": str(found.path),
        "length": found.length,
        "passed": found.passed,
        "runtimes": {reading.runtime: _reading_json(reading) for reading in found.readings},
        "parity": None if found.parity is None else found.parity.to_json(),
        "warnings": [finding.to_json() for finding in found.findings],
        "notes": list(found.notes),
    }


def _reading_json(reading: Reading) -> dict[str, object]:
    return {
        "source": reading.source,
        "limit": reading.limit,
        "switches": reading.switches,
        "refused": reading.refused,
        "unread": reading.unread,
        "notes": list(reading.notes),
        "layers": {
            layer_type: [
                {
                    "up_to_length": length,
                    "inverse_frequencies": effective.inverse_frequencies.tolist(),
                    "attention_scaling": effective.attention_scaling,
                }
                for length, effective in steps
            ]
            for layer_type, steps in reading.steps.items()
        },
    }


def _show(found: Audit) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    console.print(
        f"[bold]{escape(str(found.path))}[/bold]: {found.target}, "
        f"asked for {format_length(found.length)}",
        soft_wrap=True,
    )
    for reading in found.readings:
        console.print(f"  {escape(_in_words(reading))}", soft_wrap=True)
    if found.parity is not None:
        console.print(
            f"  run in {found.parity.runtime}: logits within "
            f"{found.parity.max_logit_difference:.2g} of the planned model's over "
            f"{found.parity.tokens} tokens (allowed: {found.parity.tolerance:.2g})",
            soft_wrap=True,
        )
    for note in found.notes:
        console.print(f"  {escape(note)}", soft_wrap=True)
    for finding in found.findings:
        console.print()
        console.print(escape(_told(finding)), soft_wrap=True)
    console.print()
    if found.passed and found.compared:
        console.print(f"[green]all well[/green]: it serves {format_length(found.length)}")
    elif found.passed:
        console.print("no trap found; there is nothing to compare its rotation with: give --plan")
    else:
        wrong = sum(finding.wrong for finding in found.findings)
        console.print(f"[red]{wrong} thing{'s' * (wrong > 1)} wrong[/red]")


def _in_words(reading: Reading) -> str:
    start = f"{reading.runtime} ({reading.source}): "
    if reading.refused:
        return f"{start}does not load: {reading.refused}"
    if reading.unread:
        return f"{start}cannot be said: {reading.unread}"
    from ropewalk.audit.finding import TOLERANCE

    parts = []
    for layer_type, steps in reading.steps.items():
        _, longest = steps[-1]
        slowest = float(longest.inverse_frequencies.min())
        period = f"slowest period {6.283185307 / slowest:,.0f}" if slowest else "some do not turn"
        parts.append(f"{layer_type}: {longest.inverse_frequencies.size} pairs, {period}")
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
