"""The charts of an extension: retrieval and perplexity against length, of all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropewalk.chart import Axis, Chart, Mark, Series
from ropewalk.evaluation.charts import INTERVALS, LENGTH, RATE, original
from ropewalk.evaluation.results import shown_method
from ropewalk.records import EXACT_MATCH, NLL, PERPLEXITY

METRICS = {EXACT_MATCH.name: "facts retrieved", NLL.name: PERPLEXITY.label}


def by_length(
    pooled: Mapping[str, Sequence[tuple[str, tuple[Mark, ...]]]], original_length: int, chosen: str
) -> list[Chart]:
    """Retrieval and perplexity, the chosen method thick."""
    names = {chosen: f"{shown_method(chosen)} (exported)"}
    return [
        Chart(
            label,
            LENGTH,
            Axis(label, "log10") if metric == NLL.name else RATE._replace(label=label),
            tuple(
                Series(names.get(method, shown_method(method)), marks, method == chosen)
                for method, marks in pooled[metric]
            ),
            original(original_length),
            caption=INTERVALS,
        )
        for metric, label in METRICS.items()
        if pooled.get(metric)
    ]
