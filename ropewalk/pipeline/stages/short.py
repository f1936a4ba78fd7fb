"""Short: the chosen schedule's cost within the original window, where the model needed none."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.evaluation.results import compare_methods
from ropewalk.pipeline.results import Difference, ShortText
from ropewalk.pipeline.stage import Stage, Work
from ropewalk.pipeline.stages.evaluate import Evaluate
from ropewalk.progress import Progress
from ropewalk.records import AS_IT_IS, EvalRecord, is_compared
from ropewalk.run_directory import RECORDS


@dataclass(frozen=True)
class CheckShort(Stage[ShortText]):
    name = "short"
    does = "what the chosen schedule costs within the original window"
    result_type = ShortText

    def run(self, work: Work, progress: Progress) -> ShortText:
        chosen, window = work.result(Evaluate).chosen, work.present.target_length
        journal = work.directory.journal(RECORDS)
        both = [
            record
            for record in EvalRecord.of_lines(journal.records, str(journal.path))
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
