"""Checks that a plan was made for the model that it is exported with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InvalidValue
from ropewalk.models.config import Config, present_plan
from ropewalk.schedule import RotaryGeometry, RotarySchedule


def check_plan(plan: ContextPlan, config: Config, source: str) -> None:
    """A plan of another model would be written, and proven, and useless."""
    present = present_plan(config, source)
    for layer_type, steps in plan.schedules.items():
        if layer_type not in present.schedules:
            continue  # named when the config is written
        _check_kept(layer_type, steps)
        geometry = present.longest(layer_type).geometry
        planned = replace(steps[-1].schedule.geometry, original_length=geometry.original_length)
        if planned != geometry and not _followed(steps, present.longest(layer_type)):
            raise InvalidValue(
                f"plan.schedules.{layer_type}",
                _differs(planned, geometry),
                f"the plan was made for another model: this one has {_differs(geometry, planned)}",
                "create the plan from this model's config",
            )


def _followed(steps: tuple[PlanStep, ...], present: RotarySchedule) -> bool:
    """True if the model turns so already: an export by a base change has that base as its own."""
    geometry = present.geometry
    return all(
        replace(one.geometry, base=geometry.base, original_length=geometry.original_length)
        == geometry
        and one.attention_scaling == present.attention_scaling
        and np.allclose(one.inverse_frequencies, present.inverse_frequencies, 1e-6, 0)
        for one in (step.schedule for step in steps)
    )


def _check_kept(layer_type: str, steps: tuple[PlanStep, ...]) -> None:
    """Kept initial positions that reach as far as the plan leave nothing to rescale."""
    for step in steps:
        kept = step.schedule.kept_initial_positions
        if kept >= step.up_to_length:
            raise InvalidValue(
                f"plan.schedules.{layer_type}.kept_initial_positions",
                kept,
                f"keeps all of the {step.up_to_length} positions that the schedule serves, so that "
                "none is rescaled",
                "plan with fewer",
            )


def _differs(geometry: RotaryGeometry, other: RotaryGeometry) -> str:
    """The differences of a geometry from another one."""
    parts = {
        f"heads of {geometry.head_dim}": geometry.head_dim == other.head_dim,
        f"{geometry.rotary_dim} turning dimensions": geometry.rotary_dim == other.rotary_dim,
        f"base {geometry.base:g}": geometry.base == other.base,
        f"{geometry.resting_pairs} resting pairs": geometry.resting_pairs == other.resting_pairs,
        f"{geometry.pair_layout} pairs": geometry.pair_layout == other.pair_layout,
    }
    return ", ".join(part for part, same in parts.items() if not same)
