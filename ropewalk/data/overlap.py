"""Text that shares nothing with other text: training must not read what is measured on."""

from __future__ import annotations

from collections.abc import Iterable

from ropewalk.data.corpora import Document

LINES = 5
"""Lines in a row, each with a letter or digit in it, that two texts share only if one is a copy."""


def apart_from(documents: Iterable[Document], others: Iterable[Document]) -> list[Document]:
    """The documents of which no run of five lines occurs in the others.

    A text of fewer lines is compared as a whole.
    """
    known = {run for other in others for run in _runs(other.text)}
    return [document for document in documents if known.isdisjoint(_runs(document.text))]


def _runs(text: str) -> set[int]:
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]
    starts = range(max(1, len(lines) - LINES + 1))
    return {hash(tuple(lines[start : start + LINES])) for start in starts}
