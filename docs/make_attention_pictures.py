"""The pictures of docs/attention.md, drawn from the layouts themselves.

python docs/make_attention_pictures.py
"""

from __future__ import annotations

from pathlib import Path

from ropewalk.attention import AttentionLayout

IMAGES = Path(__file__).parent / "images"
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


def main() -> None:
    for name, layout in LAYOUTS.items():
        layout.figure().savefig(IMAGES / f"layout_{name}.png", dpi=70)


if __name__ == "__main__":
    main()
