"""Compare: every method at the target, by theory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.pipeline.stage import Stage, Work
from ropewalk.planning.comparison import compare
from ropewalk.progress import Progress, share
from ropewalk.values import Result


class Ranked(NamedTuple):
    method: str
    reason: str


@dataclass(frozen=True, eq=False)
class Compared(Result):
    """The methods that theory can judge, best first, and why the others are not among them."""

    ranked: tuple[Ranked, ...]
    refused: Mapping[str, str]

    def summary(self) -> str:
        return f"by theory: {', '.join(row.method for row in self.ranked[:3])} …"


@dataclass(frozen=True)
class Compare(Stage[Compared]):
    name = "compare"
    does = "all methods at the target, by theory"
    result_type = Compared

    def run(self, work: Work, progress: Progress) -> Compared:
        found = compare(
            work.present,
            work.target_length,
            layer_types=(work.present.extended_layer,),
            progress=share(progress, self.name),
        )
        ranked = tuple(Ranked(each.method, each.reason) for each in found.candidates)
        return Compared(ranked, dict(found.refused))
