"""Two evaluations, compared sample by sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ropewalk.evaluation.results import MethodComparison, Paired, labels
from ropewalk.lengths import format_length
from ropewalk.records import EvalResult
from ropewalk.reports.chart import Chart
from ropewalk.reports.comparison import by_length, named_task
from ropewalk.reports.figures import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class ComparedRuns(Paired):
    """The first run minus the second, on the same samples."""

    rows_in = "comparisons"
    never_empty = ("comparisons",)

    first: str
    second: str
    """The folders, as they were given."""
    changes: tuple[str, ...]
    """Other differences between the runs, such as weights, plans or versions of packages."""
    first_results: tuple[EvalResult, ...]
    second_results: tuple[EvalResult, ...]
    """The results of the methods compared, with their means over groups of tasks."""
    comparisons: tuple[MethodComparison, ...]

    def label(self, comparison: MethodComparison) -> str:
        """The methods that are compared, for people."""
        first = labels(r.subject for r in self.first_results)[comparison.first]
        second = labels(r.subject for r in self.second_results)[comparison.second]
        return first if first == second else f"{first} − {second}"

    def summary(self) -> str:
        shown = ", ".join(
            f"{named_task(c.task, c.metric)} at {format_length(c.length)} {c.comparison}"
            for c in self.significant[:3]
        )
        told = f" ({shown}{', …' if len(self.significant) > 3 else ''})" if shown else ""
        parts = [
            f"{len(self.significant)} of {len(self.comparisons)} paired differences are "
            f"significant at 5% after Holm's correction{told}"
        ]
        if self.undecided:
            parts.append(f"{self.undecided} are not significant")
        if self.untested:
            parts.append(f"{self.untested} have too few samples for a test")
        return f"{self.title}: {'; '.join(parts)}."

    @property
    def title(self) -> str:
        return f"{self.first} − {self.second}"

    def charts(self) -> list[Chart]:
        """The gains of the first run by context length, one chart per task."""
        return by_length(self.comparisons, list(map(self.label, self.comparisons)))

    def figure(self) -> Figure:
        """The gains of the first run by context length."""
        return figure(self.charts(), f"{self.first} against {self.second} (95% intervals)")
