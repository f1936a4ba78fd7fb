"""Text to hide something in: any number of words that end where a line ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

from ropewalk.data.corpora import Document, corpus_digest
from ropewalk.errors import InputError

_WORDS = re.compile(r"\s*\S+\s*")


class Haystack:
    """The lines of some documents, as one ring: a text longer than all of it comes around again."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.sha256 = corpus_digest(documents)
        lines = [line for document in documents for line in _lines(document.text)]
        if not any(line.strip() for line in lines):
            raise InputError("the corpus is too short to hide anything in; give another corpus")
        self._lines = lines
        counts = [len(_WORDS.findall(line)) for line in lines]
        self._words_before = np.array([0, *accumulate(counts)])

    def crop(self, place: float, words: int) -> list[str]:
        """The lines that hold so many words and end at a place of the text; the first may be cut.

        Places are from 0 to 1. Growing `words` adds to the beginning and leaves the end alone, so
        that what stands before the question does not depend on the length.
        """
        end = int(place * len(self._lines)) + 1
        if words == 0:
            return []
        total = self._words
        first = int(self._words_before[end]) - words
        turns = -(first // total)
        if turns == 0:
            return self._from(first, end)
        begun = self._from(first + turns * total, len(self._lines))
        return begun + self._lines * (turns - 1) + self._lines[:end]

    def stretch(self, place: float, words: int) -> str:
        """The part of the text in which such a crop ends, of as many parts as there are crops.

        Crops of one part read the same text.
        """
        parts = max(1, self._words // max(1, words))
        return f"{self.sha256[:8]}@{int(place * parts)}/{parts}"

    @property
    def _words(self) -> int:
        return int(self._words_before[-1])

    def _from(self, word: int, end: int) -> list[str]:
        """The lines from a word on, up to a line."""
        line = int(np.searchsorted(self._words_before, word, side="right")) - 1
        inside = word - int(self._words_before[line])
        head = "".join(_WORDS.findall(self._lines[line])[inside:]) if inside else self._lines[line]
        return [head, *self._lines[line + 1 : end]]


def insert(lines: Sequence[str], needles: Iterable[tuple[float, str]]) -> str:
    """The text with each needle before the line at its depth, never before an empty line.

    Tokenizers join line breaks, so a needle between two of them would change the text around it.
    """
    lines_at = [i for i, line in enumerate(lines) if line.strip()] + [len(lines)]
    put = sorted(
        (lines_at[min(int(depth * len(lines_at)), len(lines_at) - 1)], needle)
        for depth, needle in needles
    )
    parts: list[str] = []
    done = 0
    for place, needle in put:
        parts += [*lines[done:place], needle]
        done = place
    return "".join([*parts, *lines[done:]])


def _lines(text: str) -> list[str]:
    """The lines, each with its end, also the last one."""
    return [f"{line}\n" for line in text.split("\n")]
