"""The picture of an extension: retrieval and perplexity against length, every method beside the
others, with intervals.

Methods stand side by side at each length, so that none hides another where they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.evaluation.results import estimate, grouped, labels, shown_method
from ropewalk.extras import required_by
from ropewalk.lengths import format_length
from ropewalk.records import AS_IT_IS, EXACT_MATCH, NLL, PERPLEXITY, EvalRecord

METRICS = {EXACT_MATCH.name: "retrieved, all tasks", NLL.name: PERPLEXITY.label}
APART = 0.045
"""How far methods stand from each other, in doublings of the length."""

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


@required_by("a figure")
def extension_figure(
    pooled: Mapping[str, Sequence[MethodBars]], *, chosen: str, original_length: int
) -> Figure:
    """Both panels; the chosen method is drawn thick, and a dotted line ends what was trained."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, (metric, name) in zip(figure.subplots(1, 2), METRICS.items(), strict=True):
        shown = pooled[metric]
        for i, line in enumerate(shown):
            moved = 2 ** (APART * (i - (len(shown) - 1) / 2))
            main = line.method == chosen
            axes.errorbar(
                [bar.length * moved for bar in line.bars],
                [bar.value for bar in line.bars],
                [_reach(line.bars, "low"), _reach(line.bars, "high")],
                label=f"{line.method} (exported)" if main else shown_method(line.method),
                color=f"C{i}",
                marker="o",
                markersize=6 if main else 3.5,
                linewidth=2.5 if main else 1,
                elinewidth=1,
                zorder=3 if main else 2,
            )
        lengths = sorted({bar.length for line in shown for bar in line.bars})
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [format_length(length) for length in lengths])
        axes.minorticks_off()
        axes.axvline(original_length, color="0.5", linewidth=0.8, linestyle=":", zorder=0)
        axes.set_xlabel("context length in tokens")
        axes.set_ylabel(name)
        axes.grid(axis="y", color="0.92", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _reach(bars: Sequence[Bar], end: str) -> list[float]:
    """How far each interval goes from its value."""
    return [
        abs(bar.value - limit) if (limit := getattr(bar, end)) is not None else 0.0 for bar in bars
    ]
