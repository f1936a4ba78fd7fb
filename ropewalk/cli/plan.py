"""`ropewalk plan`: a schedule for a longer context, from a model's config alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli.by_theory import plan_by_theory, sufficient_base
from ropewalk.cli.shared import (
    JsonOption,
    ModelArgument,
    geometry_json,
    load_model_config,
    pair_rows,
    print_json,
    schedule_json,
    show_steps,
    table,
)
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import InputError, RopewalkError
from ropewalk.lengths import format_length, parse_length
from ropewalk.models.config import Config, present_plan
from ropewalk.models.stock_config import rope_parameters
from ropewalk.planning.extension import extend_plan, parse_settings
from ropewalk.run_directory import write_atomically
from ropewalk.schedule import LogNForm


def command(
    model: ModelArgument,
    target: Annotated[
        int,
        typer.Option("--to", metavar="LENGTH", parser=parse_length, help="Such as 131072 or 128k."),
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
    as_json: JsonOption = False,
) -> None:
    """Plan a longer context: the factors of a method, ready for a runtime's config."""
    layers = layers or [FULL_ATTENTION]
    config = load_model_config(model)
    present = present_plan(config, model)
    if method is None:
        if settings or log_n:
            raise InputError("--set and --log-n go with a --method")
        plan_by_theory(present, target, config, layers, from_original, output, plot, as_json)
        return
    parameters = parse_settings(method, settings or ())
    if "base_change" in method.split("+") and "base" not in parameters:
        parameters["base"] = sufficient_base(
            present, target, layers[0], from_original=from_original
        )
    plan = extend_plan(
        present,
        target,
        method,
        parameters,
        layer_types=layers,
        from_original=from_original,
        log_n=log_n,
    )
    if output is not None:
        write_atomically(output, plan.dumps())
    if plot is not None:
        from ropewalk.reports.schedules import draw_factors, factor_curves

        curves = factor_curves({"now": present, method: plan}, layers[0])
        lengths = f"{format_length(present.target_length)} to {format_length(target)}"
        draw_factors(curves, plot, f"{plan.model}: {lengths}")
    if as_json:
        print_json(_as_json(present, plan, config, layers[0]))
    else:
        _show(present, plan, config, layers[0])
        for path in (output, plot):
            if path is not None:
                print(f"wrote {path}")


def _stock_setting(plan: ContextPlan, config: Config) -> tuple[dict[str, object] | None, str]:
    """The rope_parameters of a stock config, or the reason why there are none."""
    try:
        return rope_parameters(plan, config), ""
    except RopewalkError as error:
        return None, str(error)


def _as_json(
    present: ContextPlan, plan: ContextPlan, config: Config, layer: str
) -> dict[str, object]:
    setting, refused = _stock_setting(plan, config)
    return {
        "model": plan.model,
        "plan_id": plan.id,
        "geometry": geometry_json(present),
        "target_length": plan.target_length,
        **schedule_json(plan.longest(layer)),
        "schedules": plan.to_json()["schedules"],
        "rope_parameters": setting,
        "rope_parameters_refused": refused or None,
    }


def _show(present: ContextPlan, plan: ContextPlan, config: Config, layer: str) -> None:
    import json

    from rich.console import Console

    console = Console(highlight=False)
    before, after = present.longest(layer), plan.longest(layer)
    console.print(
        f"[bold]{plan.model}[/bold]: {format_length(before.length)} to "
        f"{format_length(plan.target_length)} by {plan.provenance['methods']}"
    )
    show_steps(console, plan)
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
    setting, refused = _stock_setting(plan, config)
    if setting is None:
        console.print(f"no stock config says this: {refused}", markup=False)
    else:
        shown = json.dumps(setting)
        shown = shown if len(shown) <= 600 else f"{shown[:600]}… (all of it in --json)"
        console.print(f'"rope_parameters": {shown}', markup=False, soft_wrap=True)
