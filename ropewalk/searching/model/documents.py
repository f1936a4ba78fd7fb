"""The documents of a search at one length, in sets that serve one purpose each.

Three sets have that length: to search on, to select by, to report on. An extension's cost on short
text is measured on the beginnings of the same stretches, at the original length and with the same
number of facts where they fit. So no two purposes share text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Self

from ropewalk.data.corpora import Document
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.planted import Planted, Stretch, plant, split_corpus, text_of
from ropewalk.evaluation.samples import DoesNotFit
from ropewalk.progress import Notice, unheard
from ropewalk.searching.model.settings import SearchSettings


class DocumentSet(NamedTuple):
    """Documents of one purpose, and the number by which a measure knows the first of them."""

    first: int
    documents: tuple[Planted, ...]

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.documents))

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(document.source for document in self.documents)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(map(text_of, self.sources))

    def until(self, count: int) -> DocumentSet:
        """The first `count` of them."""
        return self._replace(documents=self.documents[:count])


@dataclass(frozen=True)
class SearchDocuments:
    """All documents of a search at one length. The short sets are empty if nothing needs them."""

    search: DocumentSet
    selection: DocumentSet
    reporting: DocumentSet
    short_reporting: DocumentSet
    short_selection: DocumentSet
    short_search: DocumentSet

    @classmethod
    def of(
        cls,
        corpus: Sequence[Document],
        encoder: Encoder,
        length: int,
        original_length: int,
        settings: SearchSettings,
        notice: Notice = unheard,
    ) -> Self:
        long = split_corpus(
            *(corpus, encoder, length, settings.sizes, settings.seed, notice),
            plain_search=settings.as_published,
        )
        # Short text has a price at longer lengths alone, and decides only where that is limited.
        long_sets = (long.search, long.selection, long.reporting)
        cut = [long.reporting, long.selection, long.search]
        if length <= original_length or not settings.limited:
            cut[1:] = (), ()
        if length <= original_length:
            cut[0] = ()
        whole = [document for documents in cut for document in documents]
        short = iter(shortened(whole, corpus, encoder, original_length, settings.seed))
        sets, first = list[DocumentSet](), 0
        for documents in (
            *long_sets,
            *(tuple(islice(short, len(part))) for part in cut),
        ):
            sets.append(DocumentSet(first, documents))
            first += len(documents)
        return cls(*sets)

    @property
    def all(self) -> tuple[Planted, ...]:
        """Every document, at the place of its number."""
        return sum((documents for _, documents in vars(self).values()), ())


def shortened(
    documents: Sequence[Planted],
    corpus: Sequence[Document],
    encoder: Encoder,
    length: int,
    seed: int,
) -> tuple[Planted, ...]:
    """The beginning of each document; none at all if the length has no room for a fact."""
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
