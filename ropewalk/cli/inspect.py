"""`ropewalk inspect`: what a model's rotary embedding is, and what it does now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.shared import (
    JsonOption,
    ModelArgument,
    geometry_json,
    load_model_config,
    main_layer,
    pair_rows,
    print_json,
    schedule_json,
    show_steps,
    table,
)
from ropewalk.context_plan import ContextPlan
from ropewalk.lengths import format_length
from ropewalk.models.config import present_plan
from ropewalk.schedule import RotarySchedule
from ropewalk.theory.coverage import coverage, critical_dimension, critical_pair
from ropewalk.theory.decay import Decay, decay

if TYPE_CHECKING:
    from ropewalk.models.variances import PairVariances

MEASURED_TOKENS = 16384
LONGEST_SEQUENCE = 2048


def command(
    model: ModelArgument,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Run the model, and weigh the theory by the variances of its queries."
        ),
    ] = False,
    corpus: Annotated[
        str, typer.Option(metavar="FILE", help="The text to measure on.")
    ] = "held-out",
    as_json: JsonOption = False,
) -> None:
    """Show a model's rotary geometry and the schedule it follows now."""
    plan: ContextPlan
    measured: PairVariances | None = None
    if measure:
        plan, measured = _measure(model, corpus)
    else:
        plan = present_plan(load_model_config(model), model)
    if as_json:
        print_json(
            {
                "model": plan.model,
                "geometry": geometry_json(plan),
                "schedules": plan.to_json()["schedules"],
                **schedule_json(plan.longest(main_layer(plan))),
                "theory": _theory_json(plan.longest(main_layer(plan))),
                **({} if measured is None else {"measured": _measured_json(plan, measured)}),
            }
        )
    else:
        _show(plan, measured)


def _measure(model: str, corpus: str) -> tuple[ContextPlan, PairVariances]:
    """Run a model over some text, in sequences within its window."""
    from ropewalk.data.corpora import read_documents
    from ropewalk.evaluation.encoding import Encoder
    from ropewalk.models.load import load
    from ropewalk.models.variances import measure_variances

    documents = read_documents(corpus)
    loaded = load(model)
    plan = loaded.present_plan
    length = min(plan.longest(main_layer(plan)).geometry.original_length, LONGEST_SEQUENCE)
    sequences = Encoder(loaded.tokenizer).sequences(documents, length, MEASURED_TOKENS)
    return plan, measure_variances(loaded.model, sequences)


def _measured_json(plan: ContextPlan, measured: PairVariances) -> dict[str, object]:
    layer = main_layer(plan)
    found = _weighted_decay(plan, measured)
    return {
        "tokens": measured.tokens,
        "query_variances": measured.query_weights(layer).tolist(),
        "key_variances": measured.key_weights(layer).tolist(),
        "effective_length": found.effective_length,
        "violations": found.violations,
        "least_advantage": found.least,
    }


def _weighted_decay(plan: ContextPlan, measured: PairVariances) -> Decay:
    layer = main_layer(plan)
    schedule = plan.longest(layer)
    return decay(schedule, _judged(schedule), measured.query_weights(layer))


def _show(plan: ContextPlan, measured: PairVariances | None) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    layer = main_layer(plan)
    schedule = plan.longest(layer)
    geometry = schedule.geometry
    console.print(f"[bold]{plan.model}[/bold]")
    console.print(
        f"  heads of {geometry.head_dim}, {geometry.rotary_dim} dimensions rotate as "
        f"{geometry.pairs} pairs ({geometry.pair_layout} layout), base {geometry.base:,.10g}"
    )
    console.print(
        f"  pretrained at {format_length(geometry.original_length)}, "
        f"serves {format_length(schedule.length)} now"
    )
    show_steps(console, plan)
    for line in _theory_lines(schedule):
        console.print(f"  {line}", soft_wrap=True)
    columns = ["pair", "wavelength", f"turns in {format_length(schedule.length)}", "factor"]
    variances = []
    if measured is not None:
        console.print(
            f"  weighted by the variances of its queries on {measured.tokens:,} tokens, "
            f"{_effective_length(_weighted_decay(plan, measured))}",
            soft_wrap=True,
        )
        columns += ["query variance", "key variance"]
        variances = [measured.query_weights(layer), measured.key_weights(layer)]
    pairs = table(*columns)
    for i in pair_rows(geometry.pairs):
        wavelength = schedule.wavelengths[i]
        pairs.add_row(
            str(i),
            f"{wavelength:,.2f}",
            f"{schedule.length / wavelength:,.2f}",
            f"{schedule.rescale_factors[i]:.4f}",
            *(f"{of_pair[i]:.3f}" for of_pair in variances),
        )
    console.print()
    console.print(pairs)


def _theory_json(schedule: RotarySchedule) -> dict[str, object]:
    found, angles = decay(schedule, _judged(schedule)), coverage(schedule, _judged(schedule))
    plain = RotarySchedule.plain(schedule.geometry)
    return {
        "length": found.length,
        "effective_length": found.effective_length,
        "violations": found.violations,
        "least_advantage": found.least,
        "out_of_distribution_pairs": list(angles.out_of_distribution),
        "out_of_distribution_share": angles.out_of_distribution_share,
        "critical_pair": critical_pair(plain),
        "critical_dimension": critical_dimension(plain),
    }


def _theory_lines(schedule: RotarySchedule) -> Iterator[str]:
    found, angles = decay(schedule, _judged(schedule)), coverage(schedule, _judged(schedule))
    length = format_length(found.length)
    yield _effective_length(found)
    new = len(angles.out_of_distribution)
    critical = critical_pair(RotarySchedule.plain(schedule.geometry))
    slow = "every pair" if critical is None else f"pairs before {critical}"
    yield (
        f"angles: pretraining turned {slow} all the way round; "
        f"{new or 'none'} of {schedule.geometry.pairs} pairs meet new angles within {length}"
    )


def _effective_length(found: Decay) -> str:
    length = format_length(found.length)
    if found.effective_length is None:
        return f"effective length: all of {length}, where similar keys beat random ones"
    return (
        f"effective length: {found.effective_length:,} of {length}; random keys beat similar "
        f"ones at {found.violations:,} distances"
    )


def _judged(schedule: RotarySchedule) -> int:
    """Up to here: a sum over more positions takes too long for a glance."""
    return min(schedule.length, 16 * 1024**2)
