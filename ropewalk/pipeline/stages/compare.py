"""Compare: every method at the target, by theory."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.pipeline.results import Compared, Ranked
from ropewalk.pipeline.stage import Stage, Work
from ropewalk.planning.comparison import ranking_of
from ropewalk.progress import Progress, share


@dataclass(frozen=True)
class Compare(Stage[Compared]):
    name = "compare"
    does = "all methods at the target, by theory"
    result_type = Compared

    def run(self, work: Work, progress: Progress) -> Compared:
        found = ranking_of(
            work.present,
            work.target_length,
            layer_types=(work.present.extended_layer,),
            progress=share(progress, self.name),
        )
        ranked = tuple(
            Ranked(each.method, each.reason, tuple(each.cells.items())) for each in found.candidates
        )
        return Compared(ranked, dict(found.refused))
