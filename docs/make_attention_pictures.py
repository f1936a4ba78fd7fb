"""The pictures of docs/attention.md, drawn from the layouts themselves."""

from __future__ import annotations

from docs.figures import Picture
from ropewalk.attention import AttentionLayout
from tools.layout_picture import layout_figure

DOCUMENTS = [4, 2, 5]

LAYOUTS = {
    "full": AttentionLayout.full([12]),
    "intra_document": AttentionLayout.intra_document([5, 2, 5]),
    "intra_document_reset": AttentionLayout.intra_document_reset([5, 2, 5]),
    "anchor": AttentionLayout.anchor(DOCUMENTS),
    "tags": AttentionLayout.anchor(DOCUMENTS, tag_lengths=1),
    "interleaved": AttentionLayout.interleaved(DOCUMENTS, chunks=2, seed=12),
    "padded": AttentionLayout.anchor(DOCUMENTS).padded_to(15),
}


def pictures() -> dict[str, Picture]:
    return {
        f"docs/images/layout_{name}.png": Picture(layout_figure(layout), dpi=70)
        for name, layout in LAYOUTS.items()
    }
