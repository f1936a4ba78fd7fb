"""The charts of an extension: retrieval and perplexity against length, of all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ropewalk.evaluation.results import estimate, grouped, labels, shown_method
from ropewalk.records import AS_IT_IS, EXACT_MATCH, NLL, PERPLEXITY, EvalRecord
from ropewalk.reports.chart import Axis, Chart, Mark, Series
from ropewalk.reports.evaluation import INTERVALS, LENGTH, RATE, original

METRICS = {EXACT_MATCH.name: "retrieved, all tasks", NLL.name: PERPLEXITY.label}


class Bar(NamedTuple):
    """One method at one length."""

    length: int
    value: float
    low: float | None
    high: float | None


class MethodBars(NamedTuple):
    method: str
    bars: tuple[Bar, ...]


def lines(records: Sequence[EvalRecord], metric: str) -> list[MethodBars]:
    """The samples of all tasks that are scored by the metric, pooled by subject and length."""
    found = []
    own = [r for r in records if r.metric == metric and r.positions is None]
    by_subject = grouped(own, lambda r: r.subject)
    names = labels(by_subject)
    for subject, group in by_subject.items():
        by_length = grouped(group, lambda r: r.length)
        bars = (
            # Equal samples of different tasks are different samples.
            Bar(n, *estimate([replace(r, layout=f"{r.task} {r.layout}") for r in by_length[n]]))
            for n in sorted(by_length)
        )
        known = subject.method == AS_IT_IS and names[subject] == shown_method(AS_IT_IS)
        found.append(MethodBars(AS_IT_IS if known else names[subject], tuple(bars)))
    return found


def by_length(
    pooled: Mapping[str, Sequence[MethodBars]], original_length: int, chosen: str
) -> list[Chart]:
    """All tasks of a metric together, the chosen method thick."""
    return [
        Chart(
            label,
            LENGTH,
            Axis(label, "log10") if metric == NLL.name else RATE._replace(label=label),
            tuple(
                Series(
                    f"{shown_method(line.method)}{' (exported)' * (line.method == chosen)}",
                    tuple(Mark(*bar) for bar in line.bars),
                    line.method == chosen,
                )
                for line in pooled[metric]
            ),
            original(original_length),
            caption=INTERVALS,
        )
        for metric, label in METRICS.items()
        if pooled.get(metric)
    ]
