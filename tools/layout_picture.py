"""The picture of an attention layout: rows are queries, columns are keys, one colour a document."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ropewalk.attention.layout import ANCHOR, AttentionLayout

ANCHOR_COLOUR = "#444444"
HIDDEN_COLOUR = "#f2f2f2"
DOCUMENT_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")


def layout_figure(layout: AttentionLayout) -> Figure:
    """A cell [query, key] takes the colour of the document (or anchor) whose key is seen."""
    length, positions = layout.length, layout.positions
    size = min(2.0 + 0.22 * length, 8.0)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(_cells(layout), interpolation="nearest")
    if length <= 40:
        ticks = np.arange(length)
        axes.set_xticks(ticks, [str(p) for p in positions], fontsize=7)
        axes.set_yticks(ticks, [str(p) for p in positions], fontsize=7)
        axes.set_xticks(ticks[:-1] + 0.5, minor=True)
        axes.set_yticks(ticks[:-1] + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="both", length=0)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("key, by position")
    axes.set_ylabel("query, by position")
    axes.spines[:].set_visible(False)
    return figure


def _cells(layout: AttentionLayout) -> NDArray[np.float64]:
    palette = np.array([to_rgb(colour) for colour in DOCUMENT_COLOURS])
    key_colours = palette[layout.document_ids % len(palette)]
    key_colours[layout.document_ids == ANCHOR] = to_rgb(ANCHOR_COLOUR)
    cells = np.where(layout.mask()[..., np.newaxis], key_colours, to_rgb(HIDDEN_COLOUR))
    return np.asarray(cells, dtype=np.float64)
