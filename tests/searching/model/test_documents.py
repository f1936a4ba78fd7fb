"""The documents of a search: each stands at its number, and no two purposes share text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropewalk.evaluation.encoding import Encoder
from ropewalk.searching.model.documents import SearchDocuments
from ropewalk.searching.model.settings import SearchSettings
from tests.evaluation import tiny

TARGET = 2 * tiny.WINDOW
SETTINGS = SearchSettings(TARGET, documents=(3, 2, 2))


def of(settings: SearchSettings, length: int = TARGET) -> SearchDocuments:
    encoder = Encoder(tiny.tokenizer(), tiny.loaded().vocabulary)
    return SearchDocuments.of(tiny.documents(), encoder, length, tiny.WINDOW, settings)


@pytest.mark.parametrize(
    ("short_limit", "length", "short"),
    [(0.02, TARGET, [2, 2, 3]), (None, TARGET, [2, 0, 0]), (0.02, tiny.WINDOW, [0, 0, 0])],
)
def test_a_document_stands_at_its_number_and_short_ones_are_there_where_they_count(
    short_limit: float | None, length: int, short: list[int]
) -> None:
    documents = of(replace(SETTINGS, short_limit=short_limit), length)
    sets = vars(documents)
    assert [len(own.numbers) for own in sets.values()] == [3, 2, 2, *short]
    for own in sets.values():
        assert [documents.all[number] for number in own.numbers] == list(own.documents)
    numbers = [number for own in sets.values() for number in own.numbers]
    assert numbers == list(range(len(documents.all)))


def test_short_documents_begin_those_of_their_purpose_and_no_other() -> None:
    documents = of(SETTINGS)
    for purpose in ("search", "selection", "reporting"):
        whole, short = getattr(documents, purpose), getattr(documents, f"short_{purpose}")
        assert short.sources == whole.sources
        assert {len(document.tokens) for document in short.documents} == {tiny.WINDOW}
    purposes = (documents.search, documents.selection, documents.reporting)
    assert len({source for own in purposes for source in own.sources}) == 7
    assert documents.search.until(2).numbers == documents.search.numbers[:2]
