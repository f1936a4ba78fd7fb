"""Short: what the chosen schedule costs within the original window, where the model needed none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.evaluation.conditions import AS_IT_IS
from ropewalk.evaluation.results import compare_methods
from ropewalk.evaluation.statistics import is_significant
from ropewalk.lengths import format_length
from ropewalk.pipeline.stage import Stage, Work
from ropewalk.pipeline.stages.evaluate import Evaluate
from ropewalk.progress import Progress
from ropewalk.records import EvalRecord, is_compared
from ropewalk.run_directory import RECORDS
from ropewalk.values import Result


class Difference(NamedTuple):
    """The chosen schedule less the model as it is, on the same samples."""

    task: str
    metric: str
    length: int
    difference: float
    low: float | None
    high: float | None
    adjusted_p: float | None
    """None where there are too few samples for a test."""

    @property
    def is_worse(self) -> bool:
        worse = self.difference > 0 if self.metric == "nll" else self.difference < 0
        return worse and is_significant(self.adjusted_p)

    def __str__(self) -> str:
        """A difference of losses is a ratio of perplexities."""
        if self.metric == "nll":
            change = f"{math.expm1(self.difference):+.1%}"
        else:
            change = f"{100 * self.difference:+.0f} points"
        return f"{self.task} at {format_length(self.length)} {change}"


@dataclass(frozen=True, eq=False)
class ShortText(Result):
    """What the chosen schedule costs at the lengths that the model served before."""

    chosen: str
    differences: tuple[Difference, ...]

    def summary(self) -> str:
        worse = [difference for difference in self.differences if difference.is_worse]
        if not self.differences:
            return "no length within the original length was evaluated"
        if all(difference.adjusted_p is None for difference in self.differences):
            return "too few samples to compare within the original length"
        untested = [d for d in self.differences if d.adjusted_p is None]
        if not worse:
            said = f"no significant loss from {self.chosen} within the original length"
            names = ", ".join(f"{d.task} at {format_length(d.length)}" for d in untested)
            return f"{said}; too few samples to tell: {names}" if untested else said
        return (
            f"{self.chosen} is worse within the original length: {', '.join(map(str, worse))}; "
            "`ropewalk search --recover` searches a separate schedule for these lengths"
        )


@dataclass(frozen=True)
class CheckShort(Stage[ShortText]):
    name = "short"
    does = "what the chosen schedule costs within the original window"
    result_type = ShortText

    def run(self, work: Work, progress: Progress) -> ShortText:
        chosen, window = work.result(Evaluate).chosen, work.present.target_length
        records = [
            EvalRecord.from_json(record, f"record {i}")
            for i, record in enumerate(work.directory.journal(RECORDS).records, start=1)
        ]
        both = [
            record
            for record in records
            if record.length <= window
            and record.method in (AS_IT_IS, chosen)
            and is_compared(record)
        ]
        # The model as it is was run first, and a comparison tells by how much the first is above.
        return ShortText(
            chosen,
            tuple(
                Difference(
                    task=found.task,
                    metric=found.metric,
                    length=found.length,
                    difference=-found.comparison.difference,
                    low=_negative(found.comparison.high),
                    high=_negative(found.comparison.low),
                    adjusted_p=found.adjusted_p,
                )
                for found in compare_methods(both)
            ),
        )


def _negative(value: float | None) -> float | None:
    return None if value is None else -value
