"""The journal of a training, a line a step, and its charts. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Literal, NamedTuple

from ropewalk.chart import Axis, Chart, Mark, Series
from ropewalk.errors import InputError
from ropewalk.untrusted import Fields

JOURNAL = "training.jsonl"


class Step(NamedTuple):
    """A line of training.jsonl."""

    step: int
    loss: float
    """In nats per predicted token, of the weights before the step."""
    grad_norm: float
    learning_rate: float
    tokens: int
    """Read in this stage up to here, padding included."""

    @classmethod
    def of_lines(cls, lines: Iterable[object], path: str) -> dict[int, list[Step]]:
        """The steps of each stage, which must stand there once and in order."""
        stages: dict[int, list[Step]] = {}
        for i, line in enumerate(lines, start=1):
            fields = Fields(line, f"{path}: line {i}")
            seen = stages.setdefault(stage := fields.integer("stage"), [])
            step = cls(
                fields.integer("step"),
                fields.number("loss"),
                fields.number("grad_norm"),
                fields.number("learning_rate"),
                fields.integer("tokens"),
            )
            if step.step != len(seen) + 1:
                raise InputError(
                    f"{path}: line {i} is step {step.step} of stage {stage}, where step "
                    f"{len(seen) + 1} is expected; restore the file, or give another run directory "
                    "(`run`)"
                )
            seen.append(step)
        return stages


SMOOTHED = 20
"""The thick line is the mean of so many steps, at most a fifth of the stage."""

CURVES: tuple[tuple[str, str, Literal["linear", "log10"]], ...] = (
    ("loss", "loss in nats per token", "linear"),
    ("grad_norm", "norm of the gradient", "log10"),
    ("learning_rate", "learning rate", "linear"),
)
MOST = 400
"""Marks of a curve: of more steps, the mean of each stretch is drawn."""


def curves(stages: Sequence[tuple[str, Sequence[Step]]]) -> tuple[Chart, ...]:
    """Loss, norm of the gradient and learning rate by tokens read, stage after stage."""
    charts = []
    for key, label, scale in CURVES:
        series, before = [], 0
        for name, steps in stages:
            marks = [Mark(before + step.tokens, getattr(step, key)) for step in steps]
            series.append(Series(name, _thinned(marks)))
            width = min(SMOOTHED, len(marks) // 5)
            if key == "loss" and width > 1:
                means = _thinned(_running(marks, width))
                series.append(Series(f"{name}, mean of {width} steps", means, main=True))
            before += steps[-1].tokens
        caption = ""
        if max(len(steps) for _, steps in stages) > MOST:
            caption = f"Each mark is the mean of a stretch of steps, of {MOST} a stage; bars reach "
            caption += "from its lowest to its highest value."
        if len({mark.y for curve in series for mark in curve.marks}) == 1 < len(series[0].marks):
            continue  # a constant learning rate is no curve
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
