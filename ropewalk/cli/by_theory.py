"""What the theory gives to planning: the base that a length needs, and a choice among methods."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import geometry_json, print_json, table
from ropewalk.context_plan import ContextPlan
from ropewalk.exporting.features import RUNTIMES, loadable_by
from ropewalk.lengths import format_length
from ropewalk.models.config import Config
from ropewalk.run_directory import write_atomically

if TYPE_CHECKING:
    from ropewalk.planning.comparison import Candidate, Comparison

BEST_PLAN = Path("plan.json")


def sufficient_base(
    present: ContextPlan, target_length: int, layer: str, *, from_original: bool = False
) -> float:
    """A base that the length is safe with, rounded up to three digits; never below the present."""
    from ropewalk.theory.table import safe_base

    schedule = present.longest(layer)
    geometry = schedule.geometry
    with progress_bar(f"safe base for {format_length(target_length)}") as progress:
        safe = safe_base(
            geometry.head_dim, target_length, rotary_dim=geometry.rotary_dim, progress=progress
        )
    now = geometry.base if from_original else schedule.geometric_base
    return max(_rounded_up(safe.value), now or geometry.base)


def _rounded_up(base: float, digits: int = 3) -> float:
    """Every base above a safe one is safe, so rounding up costs nothing."""
    unit = 10.0 ** (math.floor(math.log10(base)) + 1 - digits)
    return math.ceil(base / unit) * unit


def plan_by_theory(
    present: ContextPlan,
    target_length: int,
    config: Config,
    layers: list[str],
    from_original: bool,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare all methods, write the best one's plan."""
    from ropewalk.planning.comparison import compare

    base = sufficient_base(present, target_length, layers[0], from_original=from_original)
    with progress_bar("comparing") as progress:
        found = compare(
            present,
            target_length,
            layer_types=layers,
            from_original=from_original,
            parameters={"base_change": {"base": base}},
            progress=progress,
        )
    output = output or BEST_PLAN
    best = found.candidates[0]
    write_atomically(output, best.plan.dumps())
    if plot is not None:
        from ropewalk.reports.schedules import draw_factors, factor_curves

        plans = {candidate.methods: candidate.plan for candidate in found.candidates}
        draw_factors(factor_curves(plans, layers[0]), plot)
    if as_json:
        print_json(
            {
                "model": present.model,
                "geometry": geometry_json(present),
                "target_length": target_length,
                "best": best.methods,
                "candidates": [_as_json(candidate, config) for candidate in found.candidates],
                "refused": dict(found.refused),
                "wrote": str(output),
            }
        )
    else:
        _show(present, found, config)
        for path in (output, plot):
            if path is not None:
                print(f"wrote {path}")


def _as_json(candidate: Candidate, config: Config) -> dict[str, object]:
    return {
        "method": candidate.methods,
        "parameters": dict(candidate.parameters),
        "plan_id": candidate.plan.id,
        "effective_length": candidate.decay.effective_length,
        "violations": candidate.decay.violations,
        "least_advantage": candidate.decay.least,
        "out_of_distribution_pairs": len(candidate.coverage.out_of_distribution),
        "out_of_distribution_share": candidate.coverage.out_of_distribution_share,
        "fast_stretch": candidate.fast_stretch,
        "attention_scaling": candidate.schedule.attention_scaling,
        "runtimes": list(loadable_by(candidate.plan, config)),
        "reason": candidate.reason,
    }


def _loads_in(runtimes: tuple[str, ...]) -> str:
    missing = [runtime for runtime in RUNTIMES if runtime not in runtimes]
    if not runtimes:
        return "ropewalk only"
    if len(runtimes) == 1:
        return f"{runtimes[0]} only"
    return f"all but {', '.join(missing)}" if missing else "all runtimes"


def _show(present: ContextPlan, found: Comparison, config: Config) -> None:
    from rich.console import Console

    rows = table("method", "effective length", "below 0", "new angles", "fast pairs", "loads in")
    for candidate in found.candidates:
        effective = candidate.decay.effective_length
        rows.add_row(
            candidate.methods,
            f"all {format_length(found.target_length)}" if effective is None else f"{effective:,}",
            f"{candidate.decay.violations:,}",
            f"{len(candidate.coverage.out_of_distribution)}/{len(candidate.coverage.seen)} pairs",
            f"×{candidate.fast_stretch:.3g}",
            _loads_in(loadable_by(candidate.plan, config)),
        )
    console = Console(highlight=False)
    console.print(
        f"[bold]{present.model}[/bold] to {format_length(found.target_length)}, by theory"
    )
    console.print(rows)
    for candidate in found.candidates:
        given = ", ".join(f"{key} {value:,}" for key, value in candidate.parameters.items())
        name = f"{candidate.methods} ({given})" if given else candidate.methods
        console.print(f"  [bold]{name}[/bold]: {candidate.reason}", soft_wrap=True)
    for method, reason in found.refused.items():
        console.print(f"  {method} is not among them: {reason}", style="dim", soft_wrap=True)
