"""The journal of a training: a line a step. No torch."""

from __future__ import annotations

from typing import NamedTuple

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
    def of_line(cls, line: object, path: str) -> tuple[int, Step]:
        """The stage that a line of the journal is of, and its step."""
        fields = Fields(line, path)
        return fields.integer("stage"), cls(
            fields.integer("step"),
            fields.number("loss"),
            fields.number("grad_norm"),
            fields.number("learning_rate"),
            fields.integer("tokens"),
        )
