"""Inspect: the model as it stands, and how far it is to be extended."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.lengths import format_length
from ropewalk.pipeline.stage import Stage, Work
from ropewalk.progress import Progress
from ropewalk.schedule import RotaryGeometry
from ropewalk.values import Result


@dataclass(frozen=True, eq=False)
class Inspected(Result):
    """The start and the end of the way."""

    model: str
    method: str
    geometry: RotaryGeometry
    serves: int
    target_length: int

    def derived(self) -> dict[str, object]:
        return {"scale": self.target_length / self.serves}

    def summary(self) -> str:
        return (
            f"{self.model}: {self.method}, serves {format_length(self.serves)} tokens; to "
            f"{format_length(self.target_length)}, {self.target_length / self.serves:g} times as "
            "many"
        )


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
