"""The page of a training: its curves, the plan that it follows, and how to load the model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ropewalk.api.train import RESULTS, Trained
from ropewalk.lengths import format_length
from ropewalk.reports.commands import schedules
from ropewalk.reports.commands.folder import RunFolder
from ropewalk.reports.page.blocks import Axis, Chart, Mark, Page, Section, Series
from ropewalk.reports.training import SMOOTHED
from ropewalk.untrusted import Fields

JOURNAL = "training.jsonl"
MOST = 400
"""Marks of a curve: of more steps, the mean of each stretch is drawn."""


class Step(NamedTuple):
    """What is drawn of a line of the journal."""

    stage: int
    tokens: int
    loss: float
    grad_norm: float
    learning_rate: float


def page(run: RunFolder) -> Page:
    found = run.result(RESULTS, Trained)
    steps = [_step(i, line) for i, line in enumerate(run.lines(JOURNAL), start=1)]
    names = None
    if found is not None:
        names = [f"{format_length(s.length)}, {s.method}" for s in found.stages]
    sections = [Section("Training", _curves(steps, names), run.made_by)] if steps else []
    if found is not None:
        sections.append(schedules.of_plans({"plan": found.plan}))
        sections.append(
            schedules.loading((found.exported,), found.plan, run.path / found.exported.path.name)
        )
    elif run.plan is not None:
        sections.append(schedules.of_plans({"plan": run.plan}))
    return Page(
        "A training" if found is None else f"{found.model}, trained",
        f"Unfinished: {len(steps):,} steps so far." if found is None else found.summary(),
        (),
        tuple(sections),
        () if found is not None else (RESULTS,),
    )


def _step(number: int, line: dict[str, object]) -> Step:
    fields = Fields(line, f"{JOURNAL}: line {number}")
    return Step(
        fields.integer("stage"),
        fields.integer("tokens"),
        *(fields.number(key) for key in ("loss", "grad_norm", "learning_rate")),
    )


def _curves(steps: Sequence[Step], names: Sequence[str] | None) -> tuple[Chart, ...]:
    stages: dict[int, list[Step]] = {}
    for step in steps:
        stages.setdefault(step.stage, []).append(step)
    charts = []
    for key, label, scale in (
        ("loss", "loss in nats per token", "linear"),
        ("grad_norm", "norm of the gradient", "log10"),
        ("learning_rate", "learning rate", "linear"),
    ):
        series, before = [], 0
        for number, own in sorted(stages.items()):
            name = f"stage {number}" if names is None else names[number - 1]
            marks = [Mark(before + step.tokens, getattr(step, key)) for step in own]
            series.append(Series(name, _thinned(marks)))
            if key == "loss":
                width = max(1, min(SMOOTHED, len(marks) // 5))
                means = _thinned(_running(marks, width))
                series.append(Series(f"{name}, mean of {width} steps", means, main=True))
            before += own[-1].tokens
        axis = Axis(label, scale)  # type: ignore[arg-type]
        charts.append(Chart(label, Axis("tokens read"), axis, tuple(series)))
    return tuple(charts)


def _running(marks: Sequence[Mark], width: int) -> list[Mark]:
    """Each with the mean of the last `width` values."""
    return [
        Mark(marks[end - 1].x, sum(m.y for m in marks[end - width : end]) / width)
        for end in range(width, len(marks) + 1)
    ]


def _thinned(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """At most `MOST` marks, each the mean of a stretch, at its end."""
    if len(marks) <= MOST:
        return tuple(marks)
    borders = [round(i * len(marks) / MOST) for i in range(MOST + 1)]
    return tuple(
        Mark(marks[end - 1].x, sum(m.y for m in marks[start:end]) / (end - start))
        for start, end in pairwise(borders)
    )
