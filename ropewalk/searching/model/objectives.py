"""The objective of a search on a real model: a choice among the losses that a forward measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ropewalk.registered import added
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.model.measure import ANSWERS, RETRIEVED, TEXT, Measure
from ropewalk.searching.objective import Own
from ropewalk.untrusted import real_number


@dataclass(frozen=True)
class ModelObjective:
    """Some of the documents that a measure knows, as what a search minimises."""

    measure: Measure
    kind: str
    numbers: Sequence[int]
    """The measure's numbers of the documents."""
    tokens_per_document: int
    short: Sequence[int] = ()
    """Those of their beginnings, at the original length; none if short text counts nothing."""

    @property
    def documents(self) -> int:
        return len(self.numbers)

    def losses(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        losses = loss_of(self.measure(schedules, [self.numbers[d] for d in documents]), self.kind)
        if self.short:
            short = self.measure(schedules, [self.short[d] for d in documents])
            losses = losses + short[..., TEXT]
        return losses


def loss_of(measured: FloatArray, kind: str) -> FloatArray:
    """The loss, lower is better, of measurements along the last axis.

    The mixture is a plain sum, both parts in nats a token: where retrieval breaks, its loss is
    several nats and decides; where it holds, what it has left to gain is small, and so is what it
    says against the text.
    """
    if (objective := added("objective").get(kind)) is not None:
        rows = [_own_loss(objective, each) for each in measured.reshape(-1, measured.shape[-1])]
        return np.reshape(rows, measured.shape[:-1])
    if kind == "perplexity":
        return measured[..., TEXT]
    if kind == "needle":
        return measured[..., ANSWERS]
    return measured[..., TEXT] + measured[..., ANSWERS]


def _own_loss(objective: Own, values: FloatArray) -> float:
    """The loss by a function of the user's; a schedule that failed is not asked about."""
    if not np.isfinite(values).all():
        return math.nan
    promised = values[[TEXT, ANSWERS, RETRIEVED]]  # what `rw.register` promises it
    return real_number(float(objective(*map(float, promised))), f"the loss by {objective.__name__}")
