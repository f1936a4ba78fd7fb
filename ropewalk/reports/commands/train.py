"""The page of a training: its curves, the plan that it follows, and how to load the model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Literal

from ropewalk.api.train import RESULTS, Trained
from ropewalk.lengths import format_length
from ropewalk.reports.commands import schedules
from ropewalk.reports.commands.folder import RunFolder
from ropewalk.reports.page.blocks import Axis, Chart, Mark, Page, Section, Series
from ropewalk.reports.training import SMOOTHED
from ropewalk.training.results import JOURNAL, Step

CURVES: tuple[tuple[str, str, Literal["linear", "log10"]], ...] = (
    ("loss", "loss in nats per token", "linear"),
    ("grad_norm", "norm of the gradient", "log10"),
    ("learning_rate", "learning rate", "linear"),
)
MOST = 400
"""Marks of a curve: of more steps, the mean of each stretch is drawn."""


def page(run: RunFolder) -> Page:
    found = run.result(RESULTS, Trained)
    stages = _so_far(run)
    if found is not None:
        stages = [(f"{format_length(s.length)}, {s.method}", s.steps) for s in found.stages]
    sections = [Section("Training", curves(stages), run.made_by)] if stages else []
    if found is not None:
        sections.append(schedules.of_plans({"plan": found.plan}))
        sections.append(
            schedules.loading((found.exported,), found.plan, run.path / found.exported.path.name)
        )
    elif run.plan is not None:
        sections.append(schedules.of_plans({"plan": run.plan}))
    return Page(
        "A training" if found is None else f"{found.model}, trained",
        f"Unfinished: {sum(len(own) for _, own in stages):,} steps so far."
        if found is None
        else found.summary(),
        (),
        tuple(sections),
        () if found is not None else (RESULTS,),
    )


def _so_far(run: RunFolder) -> list[tuple[str, tuple[Step, ...]]]:
    """The steps of each stage in the journal."""
    stages: dict[int, list[Step]] = {}
    for i, line in enumerate(run.lines(JOURNAL), start=1):
        number, step = Step.of_line(line, f"{run.path / JOURNAL}: line {i}")
        stages.setdefault(number, []).append(step)
    return [(f"stage {number}", tuple(own)) for number, own in sorted(stages.items())]


def curves(stages: Sequence[tuple[str, Sequence[Step]]]) -> tuple[Chart, ...]:
    """Loss, norm of the gradient and learning rate by tokens read, stage after stage."""
    charts = []
    for key, label, scale in CURVES:
        series, before = [], 0
        for name, own in stages:
            marks = [Mark(before + step.tokens, getattr(step, key)) for step in own]
            series.append(Series(name, _thinned(marks)))
            if key == "loss":
                width = max(1, min(SMOOTHED, len(marks) // 5))
                means = _thinned(_running(marks, width))
                series.append(Series(f"{name}, mean of {width} steps", means, main=True))
            before += own[-1].tokens
        caption = ""
        if max(len(own) for _, own in stages) > MOST:
            caption = f"Each mark is the mean of a stretch of steps, of {MOST} a stage; bars reach "
            caption += "from its lowest to its highest value."
        axis = Axis(label, scale)
        charts.append(Chart(label, Axis("tokens read"), axis, tuple(series), caption=caption))
    return tuple(charts)


def _running(marks: Sequence[Mark], width: int) -> list[Mark]:
    """Each with the mean of the last `width` values."""
    return [
        Mark(marks[end - 1].x, sum(m.y for m in marks[end - width : end]) / width)
        for end in range(width, len(marks) + 1)
    ]


def _thinned(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """At most `MOST` marks, each the mean of a stretch, at its end, with its lowest and highest."""
    if len(marks) <= MOST:
        return tuple(marks)
    borders = [round(i * len(marks) / MOST) for i in range(MOST + 1)]
    return tuple(
        Mark(marks[end - 1].x, fmean(values), min(values), max(values))
        for start, end in pairwise(borders)
        for values in [[mark.y for mark in marks[start:end]]]
    )
