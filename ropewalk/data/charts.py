"""The chart of training text: how long its documents are, by domain. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ropewalk.chart import Axis, Chart, Guide, Mark, Series
from ropewalk.lengths import format_length


def lengths(by_domain: Mapping[str, Sequence[int]], window: int | None) -> Chart:
    """The share of all tokens in documents of 1, 2 to 3, 4 to 7, … tokens, domains stacked."""
    bins = max(map(len, by_domain.values()), default=1)
    tokens = np.array([[*own, *[0] * (bins - len(own))] for own in by_domain.values()])
    shares = 100 * tokens / max(1, tokens.sum())
    first = int(np.argmax(shares.sum(0) > 0.05))  # a few short ones would take half the picture
    below = np.zeros(bins)
    series = []
    for name, own in zip(by_domain, shares, strict=True):
        above = below + own
        marks = tuple(
            Mark(2.0**edge, float(above[i]), float(below[i]), float(above[i]))
            for i in range(first, bins)
            for edge in (i, i + 1)
        )
        series.append(Series(f"{name} ({own.sum():.0f}%)", marks, drawn="band"))
        below = above
    return Chart(
        "",
        Axis("length of the document in tokens", "log2", "length"),
        Axis("share of all tokens (%)"),
        tuple(series),
        () if window is None else (Guide(window, f"window of {format_length(window)}"),),
    )
