"""Prose without an end, and names, for tasks that must not depend on a corpus.

Sentences hold no digits, no capitals inside and no hyphens, so that nothing that a task hides in
them is found twice. Changing a list changes samples: raise the versions of the tasks that use it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.vocabulary import ADJECTIVES, NOUNS, WORDS

VERBS: list[str] = WORDS["verbs"]
SENTENCES: list[str] = WORDS["sentences"]
PARAGRAPH = 6
FILLER: list[str] = WORDS["filler"]
FIRST_NAMES: list[str] = WORDS["first_names"]
BEGINNINGS: list[str] = WORDS["beginnings"]
PLACE_ENDINGS: list[str] = WORDS["place_endings"]
NAME_ENDINGS: list[str] = WORDS["name_endings"]
TRADES: list[str] = WORDS["trades"]


def sentences(random: Stream, count: int) -> list[str]:
    """So many sentences, each with its separator from the next; fewer are a prefix of more."""
    adjectives, nouns, verbs, forms = len(ADJECTIVES), len(NOUNS), len(VERBS), len(SENTENCES)
    return [
        SENTENCES[form % forms].format(
            ADJECTIVES[a % adjectives],
            NOUNS[b % nouns],
            VERBS[c % verbs],
            ADJECTIVES[d % adjectives],
            NOUNS[e % nouns],
            NOUNS[f % nouns],
        )
        + (" " if i % PARAGRAPH else "\n")
        for i, (form, a, b, c, d, e, f) in enumerate(random.rows(count, 7), start=1)
    ]


def noise(count: int, *, end: str = " ") -> list[str]:
    """The same few sentences again and again."""
    line = [sentence + end for sentence in FILLER]
    line[-1] = f"{FILLER[-1]}\n"
    whole, rest = divmod(count, len(line))
    return line * whole + line[:rest]


def person(number: int) -> str:
    first, number = number % len(FIRST_NAMES), number // len(FIRST_NAMES)
    return f"{FIRST_NAMES[first]} {surname(number)}"


def surname(number: int) -> str:
    return _joined(BEGINNINGS, NAME_ENDINGS, number)


def town(number: int) -> str:
    return _joined(BEGINNINGS, PLACE_ENDINGS, number)


def _joined(beginnings: Sequence[str], endings: Sequence[str], number: int) -> str:
    begin, number = number % len(beginnings), number // len(beginnings)
    return beginnings[begin] + endings[number % len(endings)]
