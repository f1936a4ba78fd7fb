"""Documents of the original length, cut from the longer ones of a search.

What an extension costs on short text is measured on these and, by choice, minimised. Each is the
beginning of the stretch that a long document was made of, with the same number of facts where they
fit. So no two sets of a search share text.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.data.corpora import Document
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.planted import Planted, Stretch, plant, text_of
from ropewalk.evaluation.samples import DoesNotFit


def shortened(
    documents: Sequence[Planted],
    corpus: Sequence[Document],
    encoder: Encoder,
    length: int,
    seed: int,
) -> tuple[Planted, ...]:
    """One for each document; none at all if the length has no room for a fact."""
    wanted = {text_of(document.source) for document in documents}
    tokens: dict[str, IntArray] = {
        each.name: encoder.pieces(each.text) for each in corpus if each.name in wanted
    }
    made = []
    for index, document in enumerate(documents):
        name, _, begin = document.source.rpartition("@")
        stretch = Stretch(document.source, tokens[name][int(begin) :][:length])
        try:
            made.append(plant(stretch, encoder, length, index, seed))
        except DoesNotFit:
            return ()
    return tuple(made)
