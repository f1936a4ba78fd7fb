"""The documents of the corpus that a verb was given: a place, or texts in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from ropewalk.arguments import as_path
from ropewalk.data.corpora import TEXT_FIELD, Document, Vocabulary, may_have_rows, read_documents
from ropewalk.errors import InvalidValue
from ropewalk.progress import Notice, log_notice

Corpus: TypeAlias = str | Path | Iterable[str | Document]
MOST_CHARACTERS = 32 * 2**20  # of a corpus, unless more are needed


def as_documents(
    corpus: Corpus,
    field: str,
    notice: Notice,
    also: Corpus | None = None,
    most: float = MOST_CHARACTERS,
) -> list[Document]:
    """The texts to measure on; a corpus may be larger than memory, and little of it is needed.

    `also` is another corpus that the field is for; if there is none, this one must have rows.
    """
    if field != TEXT_FIELD and also is None and not may_have_rows(corpus):
        raise InvalidValue(
            "field",
            field,
            "is the name of a field of rows, and this text has no rows",
            "leave it out, or give a file with rows (`corpus`)",
        )
    taken: list[Document] = []
    characters = 0
    for document in documents_in(corpus, field, notice=notice):
        if characters > most:
            notice(f"using the first {len(taken):,} documents of {corpus}")
            break
        taken.append(document)
        characters += len(document.text)
    return taken


def documents_in(
    corpus: Corpus,
    field: str,
    weights: str | None = None,
    vocabulary: Vocabulary | None = None,
    *,
    allow_download: bool = False,
    notice: Notice = log_notice,
) -> Iterator[Document]:
    """All documents of a corpus, one after the other; tokens need the `vocabulary`."""
    if isinstance(corpus, str | Path):
        as_path(corpus, "corpus")
        return read_documents(
            corpus,
            field=field,
            weights=weights,
            vocabulary=vocabulary,
            allow_download=allow_download,
            notice=notice,
        )
    if not isinstance(corpus, Iterable):
        raise InvalidValue(
            "corpus", corpus, "must be a path or a list of texts", "write ['first text', …]"
        )
    return (
        item if isinstance(item, Document) else Document(f"text {i}", _text(item, i))
        for i, item in enumerate(corpus, start=1)
    )


def _text(item: object, number: int) -> str:
    if not isinstance(item, str):
        raise InvalidValue(f"corpus, text {number}", item, "must be a string", "give its text")
    return item
