"""The chart of schedules: how much slower each pair turns, by method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ropewalk.chart import Axis, Chart, Guide, Mark, Series
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.lengths import format_length
from ropewalk.schedule import RotarySchedule


def by_step(
    plans: Mapping[str, ContextPlan], layer_type: str = FULL_ATTENTION
) -> dict[str, RotarySchedule]:
    """The schedule of each step of each plan, by the label of the plan."""
    found = {}
    for label, plan in plans.items():
        steps = plan.steps(layer_type)
        for step in steps:
            name = f"{label} to {format_length(step.up_to_length)}" if len(steps) > 1 else label
            found[name] = step.schedule
    return found


def factors(
    schedules: Mapping[str, RotarySchedule], title: str = "", main: str | None = None
) -> Chart:
    """λ against the pair, with the attention scaling in the label if there is one."""
    unturned = filter(None, map(_unturned_from, schedules.values()))
    return Chart(
        title,
        Axis("pair, from fast to slow"),
        Axis("rescale factor λ", "log2"),
        tuple(
            Series(
                label if (m := own.attention_scaling) == 1 else f"{label}, attention × {m:.3g}",
                tuple(Mark(i, float(value)) for i, value in enumerate(own.rescale_factors)),
                label == main,
            )
            for label, own in schedules.items()
        ),
        tuple(Guide(at, "under one turn") for at in [*unturned][:1]),
        caption="Each rotary pair is slowed by its factor: 2 is half as fast. From a dotted line "
        "on, pairs turn less than once within the original length.",
    )


def _unturned_from(schedule: RotarySchedule) -> int | None:
    """The first pair that completes no turn within the original length."""
    geometry = schedule.geometry
    slow = geometry.plain_frequencies * geometry.original_length < 2 * np.pi
    return int(np.argmax(slow)) if slow.any() else None
