"""The record of a training run: its journal, its progress, and models to evaluate."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerState, TrainingArguments

from ropewalk.errors import InputError
from ropewalk.lengths import format_length
from ropewalk.progress import Progress, Status
from ropewalk.run_directory import Journal
from ropewalk.training.journal import Step
from ropewalk.training.settings import StageSettings


class StepJournal:
    """The steps of one stage. One that is there already, as after a kill, is not written again."""

    def __init__(self, journal: Journal, stage: int) -> None:
        self._journal, self._stage = journal, stage
        self.steps = Step.of_lines(journal.records, str(journal.path)).get(stage, [])

    def add(self, step: Step) -> None:
        if step.step > len(self.steps):
            self._journal.append([{"stage": self._stage, **step._asdict()}])
            self.steps.append(step)

    def whole(self, count: int) -> tuple[Step, ...]:
        """All steps of a finished stage."""
        if len(self.steps) < count:
            raise InputError(
                f"{self._journal.path}: step {len(self.steps) + 1} of stage {self._stage} was "
                "trained, but its line is missing; restore the file, or give another run directory "
                "(`run`)"
            )
        return tuple(self.steps[:count])


class Recorder(TrainerCallback):  # type: ignore[misc]
    """Writes each step's line, shows the progress, and notes checkpoints with the time.

    `windows` are those of a step.
    """

    def __init__(
        self,
        stage: StageSettings,
        windows: int,
        *,
        journal: StepJournal | None,
        progress: Progress,
        event: Callable[..., None],
    ) -> None:
        self._stage, self._per_step = stage, windows * stage.window
        self._journal, self._progress, self._event = journal, progress, event
        self._began, self._first = time.monotonic(), 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any
    ) -> None:
        self._began, self._first = time.monotonic(), state.global_step
        label = f"training at {format_length(self._stage.length)}"
        self._progress(Status(label, state.global_step / self._stage.steps))

    def on_log(
        self, args: TrainingArguments, state: TrainerState, *_: Any, logs: dict[str, Any], **__: Any
    ) -> None:
        if "loss" not in logs or self._journal is None:
            return
        step = Step(
            state.global_step,
            float(logs["loss"]),
            float(logs["grad_norm"]),
            float(logs["learning_rate"]),
            state.global_step * self._per_step,
        )
        self._journal.add(step)
        rate = (step.tokens - self._first * self._per_step) / (time.monotonic() - self._began)
        self._progress(
            Status(
                f"training at {format_length(self._stage.length)}",
                step.step / self._stage.steps,
                f"loss {step.loss:.3f}, {rate:,.0f} tokens/s, {_memory()}",
            )
        )

    def on_save(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        if self._journal is not None:
            seconds = time.monotonic() - self._began
            done = (state.global_step - self._first) * self._per_step
            self._event(
                "checkpoint",
                length=self._stage.length,
                step=state.global_step,
                tokens_per_second=round(done / seconds, 1),
            )


class KeepModels(TrainerCallback):  # type: ignore[misc]
    """Keeps models as the export will be, any adapter merged, at the steps to evaluate."""

    def __init__(self, steps: tuple[int, ...], write: Callable[[Any, Path], None]) -> None:
        self._steps, self._write = steps, write

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, *_: Any, model: Any = None, **__: Any
    ) -> None:
        if state.global_step in self._steps:
            self._write(model, Path(f"step-{state.global_step}"))


def _memory() -> str:
    """The most memory that was in use so far."""
    if torch.cuda.is_available():
        return f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    return f"{peak / 2**30:.1f} GiB"
