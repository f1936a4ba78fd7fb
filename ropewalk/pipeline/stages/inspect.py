"""Inspect: the present model, and how far it is to be extended."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.pipeline.results import Inspected
from ropewalk.pipeline.stage import Stage, Work
from ropewalk.progress import Progress


@dataclass(frozen=True)
class Inspect(Stage[Inspected]):
    name = "inspect"
    does = "the model's geometry, and the schedule that it follows now"
    result_type = Inspected

    def run(self, work: Work, progress: Progress) -> Inspected:
        schedule = work.present.longest(work.present.extended_layer)
        return Inspected(
            work.source,
            schedule.method,
            schedule.geometry,
            work.present.target_length,
            work.target_length,
        )
