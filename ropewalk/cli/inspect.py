"""`ropewalk inspect`: what a model's rotary embedding is, and what it does now."""

from __future__ import annotations

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
