"""The journal of a training: a line a step. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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
            own = stages.setdefault(stage := fields.integer("stage"), [])
            step = cls(
                fields.integer("step"),
                fields.number("loss"),
                fields.number("grad_norm"),
                fields.number("learning_rate"),
                fields.integer("tokens"),
            )
            if step.step != len(own) + 1:
                raise InputError(
                    f"{path}: line {i} is step {step.step} of stage {stage}, and step "
                    f"{len(own) + 1} comes there; restore the file, or give another run directory "
                    "(`run`)"
                )
            own.append(step)
        return stages
