"""`ropewalk inspect`: a model's rotary embedding, and its present scaling."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.api.inspect import SCOPE, Inspection, Measured, Theory, inspect
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    console,
    factor_cell,
    pair_rows,
    say,
    show_result,
    show_steps,
    table,
)
from ropewalk.lengths import format_length

EXAMPLE = "ropewalk inspect llama-3.1-8b"


@command_of(inspect)
def command(call: Call[Inspection], *, as_json: JsonOption = False) -> None:
    """Show a model's rotary geometry and the schedule it follows now."""
    show_result(call(), _show, as_json=as_json)


def _show(found: Inspection) -> None:
    schedule = found.schedule
    geometry = schedule.geometry
    terminal = console(found.model, f" ({found.source})")
    for line in () if found.file is None else found.file.told():
        say(f"  {line}")
    terminal.print(
        f"  heads of {geometry.head_dim}, {geometry.rotary_dim} dimensions rotate as "
        f"{geometry.pairs} pairs ({geometry.pair_layout} layout), base {geometry.base:,.10g}"
    )
    if geometry.resting_pairs:
        terminal.print(
            f"  the slowest {geometry.resting_pairs} of these pairs have a frequency of zero"
        )
    if rotating := found.plan.provenance.get("rotating_layers"):
        terminal.print(f"  {rotating} layers rotate; a plan changes no other")
    trained = f"; trained at {format_length(found.trained_length)}" if found.trained_length else ""
    terminal.print(
        f"  pretrained frequencies for {format_length(geometry.original_length)}; "
        f"configured for {format_length(found.plan.target_length)} now{trained}"
    )
    show_steps(terminal, found.plan)
    if found.drafter:
        say(f"  {found.drafter}")
    for line in _theory_lines(found):
        say(f"  {line}")
    columns = ["pair", "wavelength", f"turns in {format_length(schedule.length)}", "factor"]
    variances = []
    if found.measured is not None:
        say(
            f"  weighted by the variances of its queries on {found.measured.tokens:,} tokens, "
            f"{_effective_length(found.measured, found.theory.length)}"
        )
        columns += ["query variance", "key variance"]
        variances = [found.measured.query_variances, found.measured.key_variances]
    pairs = table(*columns)
    for i in pair_rows(geometry.pairs):
        wavelength = schedule.wavelengths[i]
        pairs.add_row(
            str(i),
            f"{wavelength:,.2f}",
            f"{schedule.length / wavelength:,.2f}",
            factor_cell(schedule.rescale_factors[i]),
            *(f"{of_pair[i]:.3f}" for of_pair in variances),
        )
    terminal.print()
    terminal.print(pairs)


def _theory_lines(found: Inspection) -> Iterator[str]:
    theory = found.theory
    if found.schedule.has_no_positions:
        yield "no positions: no pair turns, so theory predicts nothing"
        return
    yield _effective_length(theory, theory.length)
    yield SCOPE
    new, critical = len(theory.out_of_distribution_pairs), theory.critical_pair
    turned = {None: "all pairs", 0: "no pair"}.get(critical, f"pairs before {critical}")
    told = f"{new} of {found.schedule.geometry.pairs} pairs meet" if new else "no pair meets"
    yield (
        f"angles: {turned} completed a full turn in pretraining; {told} new angles up to "
        f"{format_length(theory.length)}"
    )


def _effective_length(found: Theory | Measured, length: int) -> str:
    if found.effective_length is None:
        return (
            f"theoretical effective length: all of {format_length(length)} (a similar key scores "
            "above a random one at every distance)"
        )
    return (
        f"theoretical effective length: {found.effective_length:,} of {format_length(length)} "
        f"tokens (a random key scores above a similar one at {found.violations:,} distances)"
    )
