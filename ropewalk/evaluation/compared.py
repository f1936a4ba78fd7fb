"""Two evaluations, compared sample by sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ropewalk.blocks import Block, Cell, Paragraph, Table, Title
from ropewalk.chart import Chart
from ropewalk.evaluation import tables
from ropewalk.evaluation.gains import by_length, gain_of
from ropewalk.evaluation.results import ComparedTogether, MethodComparison, labels
from ropewalk.evaluation.statistics import p_in_words
from ropewalk.lengths import format_length
from ropewalk.records import NLL, PERPLEXITY, EvalResult, named_task


@dataclass(frozen=True, eq=False)
class ComparedRuns(ComparedTogether):
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
        examples = f" ({shown}{', …' if len(self.significant) > 3 else ''})" if shown else ""
        parts = [
            f"{len(self.significant)} of {len(self.comparisons)} paired differences are "
            f"significant at 5% after Holm's correction{examples}"
        ]
        if self.undecided:
            parts.append(f"{self.undecided} are not significant")
        if self.untested:
            parts.append(f"{self.untested} have too few samples for a test")
        return f"{self.title}: {'; '.join(parts)}."

    @property
    def title(self) -> str:
        return f"{self.first} − {self.second}"

    def blocks(self) -> Iterator[Block]:
        changes = ", ".join(self.changes) or "nothing that is recorded"
        yield Title(self.title, f"; the runs differ in {changes}")
        yield self._table()
        yield from self.charts()
        yield Paragraph(self.summary(), "verdict")
        caption = f"{tables.HOW_COMPARED}. 95% intervals; p-values are adjusted by Holm"
        yield Paragraph(caption, "quiet")

    def _table(self) -> Table:
        first, second = (
            {(r.subject, r.task, r.mode, r.metric, r.length): r for r in results}
            for results in (self.first_results, self.second_results)
        )
        rows = []
        for c in self.comparisons:
            place = c.task, c.mode, PERPLEXITY.name if c.metric == NLL.name else c.metric, c.length
            rows.append(
                (
                    Cell(self.label(c)),
                    Cell(named_task(c.task, c.metric)),
                    Cell(format_length(c.length), c.length),
                    _value(first.get((c.first, *place))),
                    _value(second.get((c.second, *place))),
                    tables.gain(c.metric, gain_of(c)),
                    Cell(p_in_words(c.adjusted_p), c.adjusted_p),
                )
            )
        columns = ("method", "task", "length", "first", "second", "gain of the first", "p (Holm)")
        return Table("On the same samples", columns, tuple(rows), tables.GAIN)

    def charts(self) -> list[Chart]:
        """The gains of the first run by context length, one chart per task."""
        return by_length(self.comparisons, list(map(self.label, self.comparisons)))

    @property
    def figure_title(self) -> str:
        return f"{self.first} against {self.second} (95% intervals)"


def _value(result: EvalResult | None) -> Cell:
    return Cell("–") if result is None else Cell(result.estimate.number(), result.value)
