"""The pictures of docs/attention.md show what each query sees."""

from __future__ import annotations

import numpy as np

from docs.make_attention_pictures import LAYOUTS
from tools.layout_picture import layout_figure


def test_pictures_colour_what_is_seen() -> None:
    for layout in LAYOUTS.values():
        (axes,) = layout_figure(layout).axes
        image = np.asarray(axes.images[0].get_array())
        seen = layout.mask()
        (hidden,) = np.unique(image[~seen], axis=0)
        assert ((image != hidden).any(axis=-1) == seen).all()
