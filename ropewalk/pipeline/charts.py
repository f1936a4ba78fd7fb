"""The charts of an extension: retrieval and perplexity against length, of all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ropewalk.chart import Axis, Chart, Mark, Series
from ropewalk.evaluation.charts import INTERVALS, LENGTH, RATE, original
from ropewalk.evaluation.results import shown_method
from ropewalk.records import EXACT_MATCH, NLL, PERPLEXITY

METRICS = {EXACT_MATCH.name: "facts retrieved", NLL.name: PERPLEXITY.label}


class Bar(NamedTuple):
    """One method at one length."""

    length: int
    value: float
    low: float | None
    high: float | None


class MethodBars(NamedTuple):
    method: str
    bars: tuple[Bar, ...]


def by_length(
    pooled: Mapping[str, Sequence[MethodBars]], original_length: int, chosen: str
) -> list[Chart]:
    """Retrieval and perplexity, the chosen method thick."""
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
