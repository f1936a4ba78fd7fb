"""Schedules in words, tables and charts: the steps of a plan, its pairs, and their factors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ropewalk.blocks import Paragraph, Table, cells
from ropewalk.chart import Axis, Chart, Guide, Mark, Series
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.lengths import format_length
from ropewalk.scaling import named, names
from ropewalk.schedule import MAX_FACTOR, Recipe, RotarySchedule

if TYPE_CHECKING:
    from ropewalk.planning.comparison import MethodCandidate


def by_step(
    plans: Mapping[str, ContextPlan], layer_type: str = FULL_ATTENTION
) -> dict[str, RotarySchedule]:
    """The schedule of each step of each plan, by the label of the plan."""
    schedules = {}
    for label, plan in plans.items():
        steps = plan.steps(layer_type)
        for step in steps:
            name = f"{label} to {format_length(step.up_to_length)}" if len(steps) > 1 else label
            schedules[name] = step.schedule
    return schedules


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
                f"{label}{' (chosen)' * (label == main)}"
                + (f", attention × {m:.3g}" if (m := schedule.attention_scaling) != 1 else ""),
                tuple(Mark(i, float(value)) for i, value in enumerate(schedule.rescale_factors)),
                label == main,
                subject=label,
            )
            for label, schedule in schedules.items()
        ),
        tuple(Guide(at, "under one turn") for at in [*unturned][:1]),
        caption="Each rotary pair is slowed by its factor: 2 is half as fast. From a dotted line "
        "on, pairs turn less than once within the original length. “Attention ×” multiplies cos "
        "and sin.",
    )


def _unturned_from(schedule: RotarySchedule) -> int | None:
    """The first pair that completes no turn within the original length."""
    geometry = schedule.geometry
    slow = geometry.plain_frequencies * geometry.original_length < 2 * np.pi
    return int(np.argmax(slow)) if slow.any() else None


_ROWS = 16
"""Pairs that a terminal shows."""


def steps(plan: ContextPlan) -> Iterator[Paragraph]:
    """Every schedule of a plan, one a line."""
    for name, schedules in plan.schedules.items():
        for step in schedules:
            upto = f" up to {format_length(step.up_to_length)}" if len(schedules) > 1 else ""
            yield Paragraph(f"  {name}{upto}: {in_words(step.schedule)}")


def pairs(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """One row a pair; a terminal shows some, evenly spaced, the last one among them."""
    shown = {round(i) for i in np.linspace(0, len(rows) - 1, min(len(rows), _ROWS))}
    numbered = tuple(cells(str(i), *row) for i, row in enumerate(rows))
    return Table("", ("pair", *columns), numbered, brief=tuple(sorted(shown)))


def factor(value: float) -> str:
    """A rescale factor in a table of pairs."""
    return f"{value:.4f}" if value < MAX_FACTOR else "does not turn"


def in_words(schedule: RotarySchedule) -> str:
    """A schedule in one line: its methods, its factors, and its other values."""
    factors = schedule.rescale_factors
    recipe = (str(_without_defaults(step)) for step in schedule.recipe)
    parts = [methods] if (methods := " then ".join(recipe)) else []
    low, high = f"{factors.min():.4g}", f"{factors.max():.4g}"
    if schedule.has_no_positions:
        parts.append("no positions")
    elif low != high:
        parts.append(f"factors {low} to {high}")
    elif low != "1":
        parts.append(f"all factors {low}")
    elif not parts:
        parts.append("pretrained frequencies")
    if schedule.attention_scaling != 1:
        parts.append(f"attention factor {schedule.attention_scaling:.6g}")
    if schedule.softmax_scaling != 1:
        parts.append(f"logits times {schedule.softmax_scaling:.6g}")
    if schedule.kept_initial_positions:
        parts.append(f"first {schedule.kept_initial_positions} positions kept")
    if schedule.log_n:
        parts.append(f"log-n {schedule.log_n.form} from {format_length(schedule.log_n.length)}")
    return "; ".join(parts)


def _without_defaults(step: Recipe) -> Recipe:
    """The parameters that a person must give to get this step."""
    declared = named(step.method).parameters if step.method in names() else {}
    said = {
        key: value
        for key, value in step.parameters.items()
        if key not in declared or declared[key].default != value
    }
    return Recipe(step.method, said)


def ranking(
    candidates: Sequence[MethodCandidate], among: set[str], targets: Sequence[str]
) -> Table:
    """The ranks of methods, and the runtimes of `targets` that load each, if among those at all."""
    rows = tuple(
        cells(
            each.name,
            "needs training" if each.needs_training else _ranked(each, trained=False),
            _ranked(each, trained=True),
            _loads_in(each.runtimes, among, targets),
        )
        for each in candidates
    )
    return Table(
        "",
        ("method", "untrained", "fine-tuned", "loads in"),
        rows,
        "untrained, fine-tuned: rank by the mean over all models and lengths of the study, and the "
        f"share that small models retrieved{_where(candidates)}\n"
        "*: less than half as much as the best method, on most of these models",
    )


def by_theory(
    candidates: Sequence[MethodCandidate], refused: Mapping[str, str]
) -> Iterator[Paragraph]:
    """The theory of each method, and the reasons for those not listed."""
    yield Paragraph("\nBy theory:")
    for each in candidates:
        settings = ", ".join(f"{key} {value:,}" for key, value in each.parameters.items())
        name = f"{each.name} ({settings})" if settings else each.name
        yield Paragraph(f"  {name}: {each.theory.removeprefix('by theory, ')}")
    for method, reason in refused.items():
        yield Paragraph(f"  not listed: {method} ({reason})", "quiet")


def _ranked(candidate: MethodCandidate, *, trained: bool) -> str:
    """`7: 0-2%*`"""
    rank = candidate.rank_after_training if trained else candidate.rank
    if rank is None:
        return "not measured"
    for each in candidate.measured:
        if bool(each.steps) == trained:
            share = each.share.replace(" to ", "-")
            return f"{rank}: {share}{'*' if each.is_refuted else ''}"
    return str(rank)


def _where(candidates: Sequence[MethodCandidate]) -> str:
    """` (7 untrained at 8 times, 5 after 200 steps at 4 times their length)`"""
    models: dict[tuple[int, int], int] = {}
    for each in (each for candidate in candidates for each in candidate.measured):
        key = each.steps, each.factor
        models[key] = max(each.models, models.get(key, 0))
    clauses = [
        f"{count} {f'after {steps} steps' if steps else 'untrained'} at {factor} times"
        for (steps, factor), count in sorted(models.items())
    ]
    return f" ({', '.join(clauses)} their length)" if clauses else ""


def _loads_in(runtimes: tuple[str, ...] | None, among: set[str], targets: Sequence[str]) -> str:
    """The runtimes, of those `among` which the model is loaded at all."""
    if runtimes is None:
        return "unknown"
    if not among.issuperset(targets):  # a GGUF file
        return ", ".join(runtimes) or "none exactly"
    missing = [runtime for runtime in targets if runtime not in runtimes]
    if not runtimes:
        return "ropewalk only"
    if len(runtimes) == 1:
        return f"{runtimes[0]} only"
    return f"all but {', '.join(missing)}" if missing else "all runtimes"
