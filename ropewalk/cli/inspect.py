"""`ropewalk inspect`: what a model's rotary embedding is, and what it does now."""

from __future__ import annotations

from collections.abc import Iterator

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
from ropewalk.lengths import format_length
from ropewalk.models.config import present_plan
from ropewalk.plan import ContextPlan
from ropewalk.schedule import RotarySchedule
from ropewalk.theory.coverage import coverage, critical_dimension, critical_pair
from ropewalk.theory.decay import decay


def command(model: ModelArgument, as_json: JsonOption = False) -> None:
    """Show a model's rotary geometry and the schedule it follows now."""
    plan = present_plan(load_model_config(model), model)
    if as_json:
        print_json(
            {
                "model": plan.model,
                "geometry": geometry_json(plan),
                "schedules": plan.to_json()["schedules"],
                **schedule_json(plan.longest(main_layer(plan))),
                "theory": _theory_json(plan.longest(main_layer(plan))),
            }
        )
    else:
        _show(plan)


def _show(plan: ContextPlan) -> None:
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
    pairs = table("pair", "wavelength", f"turns in {format_length(schedule.length)}", "factor")
    for i in pair_rows(geometry.pairs):
        wavelength = schedule.wavelengths[i]
        pairs.add_row(
            str(i),
            f"{wavelength:,.2f}",
            f"{schedule.length / wavelength:,.2f}",
            f"{schedule.rescale_factors[i]:.4f}",
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
    if found.effective_length is None:
        yield f"effective length: all of {length}, where similar keys beat random ones"
    else:
        yield (
            f"effective length: {found.effective_length:,} of {length}; random keys beat similar "
            f"ones at {found.violations:,} distances"
        )
    new = len(angles.out_of_distribution)
    critical = critical_pair(RotarySchedule.plain(schedule.geometry))
    slow = "every pair" if critical is None else f"pairs before {critical}"
    yield (
        f"angles: pretraining turned {slow} all the way round; "
        f"{new or 'none'} of {schedule.geometry.pairs} pairs meet new angles within {length}"
    )


def _judged(schedule: RotarySchedule) -> int:
    """Up to here: a sum over more positions takes too long for a glance."""
    return min(schedule.length, 16 * 1024**2)
