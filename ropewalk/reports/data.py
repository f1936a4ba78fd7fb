"""A picture of training text: how long its documents are, by domain. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ropewalk.extras import required_by
from ropewalk.lengths import format_length

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@required_by("a figure")
def lengths_figure(by_domain: Mapping[str, Sequence[int]], window: int | None) -> Figure:
    """The share of all tokens in documents of 1, 2 to 3, 4 to 7, … tokens, domains stacked."""
    from matplotlib.figure import Figure

    bins = max(map(len, by_domain.values()), default=1)
    tokens = np.array([[*own, *[0] * (bins - len(own))] for own in by_domain.values()])
    shares = 100 * tokens / max(1, tokens.sum())
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    below = np.zeros(bins)
    for name, own in zip(by_domain, shares, strict=True):
        label = f"{name} ({own.sum():.0f}%)"
        axes.bar(np.arange(bins), own, 0.9, bottom=below, label=label, align="edge")
        below += own
    if window is not None:
        axes.axvline(np.log2(window), color="0.2", linestyle="--", linewidth=1.2)
        axes.annotate(
            f"window of {format_length(window)}",
            (np.log2(window), 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -4),
            textcoords="offset points",
            va="top",
            fontsize=8,
        )
    first = int(np.argmax(below > 0.05))  # a few short ones would take half of the picture
    at = first if window is None else np.log2(window)
    first, last = min(first, int(at)), max(bins, int(at) + 1)
    ticks = np.arange(first, last + 1, max(1, (last - first) // 10))
    axes.set_xlim(first, last)
    axes.set_xticks(ticks, [format_length(2 ** int(tick)) for tick in ticks])
    axes.set_xlabel("length of the document in tokens")
    axes.set_ylabel("share of all tokens (%)")
    axes.legend(frameon=False, fontsize=8)
    return figure
