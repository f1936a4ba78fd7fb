"""Prose without an end, and names, for tasks that must not depend on a corpus.

Sentences hold no digits, no capitals inside and no hyphens, so that nothing that a task hides in
them is found twice. Changing a list changes samples: raise the versions of the tasks that use it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.vocabulary import ADJECTIVES, NOUNS

VERBS = """
admires answers blocks borrows brightens carries catches covers cleans counts crosses describes
draws enters faces finds follows forgets frames guards guides hides holds improves inspects joins
keeps leaves lifts marks meets mends misses moves opens paints passes praises protects pulls reaches
repairs replaces rescues returns sells shades shakes shares signals supports surrounds touches
trades turns visits warms watches weighs
""".split()  # noqa: SIM905 - a list of words is easier to read as text

SENTENCES = (
    "The {0} {1} {2} one {3} {4}.",
    "Every {0} {1} near the {4} {2} some other {5}.",
    "When the {1} is {0}, the {4} {2} it before the {3} {5} does.",
    "Nobody knows why this {0} {1} {2} the {5}, but the {4} looks {3}.",
    "In some {3} years the {1} {2} each {0} {4} once.",
    "No {1} that {2} the {5} is as {0} as the {3} {4}.",
    "People say that the {4} and the {5} make the {0} {1} {3}.",
    "Whoever {2} the {0} {1} should also think of the {3} {5}.",
)
PARAGRAPH = 6

FILLER = (
    "The grass is green.",
    "The sky is blue.",
    "The sun is yellow.",
    "Here we go.",
    "There and back again.",
)

FIRST_NAMES = """
Ada Alma Anton Basil Bruno Carla Cecil Clara Conrad Dora Edgar Elsa Emil Erna Felix Flora Frida
Georg Greta Hanna Hugo Ida Irma Jakob Julia Karl Klara Lena Leo Lotte Ludwig Marta Max Mina Nora
Oskar Otto Paula Petra Ralf Rosa Rudolf Selma Simon Stella Theo Thea Ursel Vera Viktor Wanda Willa
""".split()  # noqa: SIM905 - a list of words is easier to read as text
BEGINNINGS = """
Ald Bar Bel Bran Cal Cor Dal Dor Eld Fal Fen Gar Gil Hal Har Hol Kel Ken Lan Lor Mal Mar Mel Mor Nor
Orl Pel Ral Ren Ros Sal Sel Sor Tal Tor Ul Val Ver Wal Wen
""".split()  # noqa: SIM905 - a list of words is easier to read as text
PLACE_ENDINGS = """
bach berg brook bury dale den feld field ford gate ham haven hill holm hurst land ley mere mouth
ness port stead stone ton vale view wick wood worth
""".split()  # noqa: SIM905 - a list of words is easier to read as text
NAME_ENDINGS = """
ack and art ath ell en er ers ett ick ift in ing is ish ix ock off old om ond ost ov ow und us
""".split()  # noqa: SIM905 - a list of words is easier to read as text
TRADES = """
baker brewer carpenter clockmaker cooper dyer gardener glazier goldsmith locksmith mason miller
painter potter printer saddler shepherd tailor tanner weaver
""".split()  # noqa: SIM905 - a list of words is easier to read as text


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
