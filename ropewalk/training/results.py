"""The result of a training: its plan, its curve by stage, and the proven export. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ropewalk.blocks import Block, Paragraph, Table, Title, cells
from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation.statistics import t_interval
from ropewalk.exporting.exported import Exported
from ropewalk.interval import Interval
from ropewalk.lengths import format_length
from ropewalk.training.journal import Step, curves
from ropewalk.values import Charts, Drawn, Value, flat

DIVERGED = 1.0
"""Nats that the loss may rise by from text to text."""
FIRST = 10
"""Steps at either end of a stage whose mean loss is reported: single ones vary with their text."""


@dataclass(frozen=True, eq=False)
class TrainedStage(Value):
    """Training at one length."""

    never_empty = ("steps",)

    length: int
    window: int
    method: str
    """The method by which the stage was planned."""
    plan_id: str
    epochs: float
    """The number of times that the text was read."""
    steps: tuple[Step, ...]

    def derived(self) -> dict[str, object]:
        return {"loss_first": self.loss_first, "loss_last": self.loss_last}

    @property
    def loss_first(self) -> Interval:
        """The mean loss in the first steps; its interval is over steps, since each reads other
        text."""
        return _mean(self.steps[:FIRST])

    @property
    def loss_last(self) -> Interval:
        return _mean(self.steps[-FIRST:])

    def loss_in_words(self) -> str:
        """The mean loss at either end."""
        count = min(FIRST, len(self.steps))
        text = f"mean loss {self.loss_first} in the first {count} steps and {self.loss_last} in "
        text += f"the last {count}"
        if self.loss_last.value > self.loss_first.value + DIVERGED:
            text += "; it diverged, and the model is worse for it: try a lower learning rate"
        return text


def _mean(steps: Sequence[Step]) -> Interval:
    losses = [step.loss for step in steps]
    return Interval.of(fmean(losses), t_interval(losses), "nats", "steps")


@dataclass(frozen=True, eq=False)
class Trained(Drawn):
    """The result of a training run."""

    never_empty = ("stages",)

    model: str
    recipe: str | None
    run: str
    plan: ContextPlan
    """The plan that the model was trained with last, and that its config carries."""
    stages: tuple[TrainedStage, ...]
    exported: Exported
    kept: tuple[str, ...]
    """The checkpoints in `evaluate/`."""
    adapter: str | None
    """The folder of the adapter, if one was trained; the exported weights have it merged."""

    def to_rows(self) -> list[dict[str, Any]]:
        return [{"length": s.length, **flat(step)} for s in self.stages for step in s.steps]

    def derived(self) -> dict[str, object]:
        return {"tokens": self.tokens}

    @property
    def tokens(self) -> int:
        return sum(stage.steps[-1].tokens for stage in self.stages)

    @property
    def course(self) -> str:
        """The steps of each stage, and how the loss went."""
        text = "; ".join(
            f"{len(stage.steps):,} steps at {format_length(stage.length)} ({stage.method}), "
            f"{stage.loss_in_words()}"
            for stage in self.stages
        )
        return f"{text}; {self.tokens:,} tokens."

    def summary(self) -> str:
        return f"{self.model}: {self.course} {self.exported.summary()}"

    def charts(self) -> Charts:
        """The loss by tokens read, stage after stage."""
        named = [(f"{format_length(s.length)}, {s.method}", s.steps) for s in self.stages]
        return curves(named)[:1]

    def blocks(self) -> Iterator[Block]:
        yield Title(self.model, f", {self.tokens:,} tokens")
        most = min(FIRST, max(len(stage.steps) for stage in self.stages))
        heads = (f"loss, first {most} steps", f"loss, last {most} steps")
        yield Table(
            "",
            ("length", "steps", "windows of", "epochs", *heads, "plan"),
            tuple(
                cells(
                    format_length(stage.length),
                    f"{len(stage.steps):,}",
                    format_length(stage.window),
                    f"{stage.epochs:.2f}",
                    f"{stage.loss_first.value:.4f}",
                    f"{stage.loss_last.value:.4f}",
                    stage.method,
                )
                for stage in self.stages
            ),
        )
        yield from self.charts()
        yield Paragraph(self.exported.summary())
        for warning in self.exported.warnings:
            yield Paragraph(f"  {warning}", "warning")
        if self.adapter is not None:
            yield Paragraph(f"the adapter: {self.adapter}")
        # One checkpoint may be lucky, so the last ones are evaluated together.
        line = f"ropewalk evaluate {self.run}/evaluate --checkpoints {len(self.kept)}"
        yield Paragraph(f"the last checkpoints: {line}")
        yield Paragraph(f"load it: {self.exported.load}")
