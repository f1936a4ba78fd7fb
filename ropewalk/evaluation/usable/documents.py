"""Documents of many facts with a question about each, as text: any model, or any server, reads it.

    text with facts at stratified depths │ question 1, answer 1 │ question 2, answer 2 │ …

A model in process reads a document in one forward, and has found a fact if it would have written
its answer. A server is asked to go on after each question, with the right answers to those before:
every prompt begins with the one before, so that a server which keeps prompts reads the text once.

Questions have four degrees. Where a model finds almost all facts of one degree, a harder one shows
more; where it finds few even nearby, an easier one does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ropewalk.data.corpora import Document
from ropewalk.errors import InputError
from ropewalk.evaluation.haystack import Haystack, insert
from ropewalk.evaluation.planted import KINDS, MIXED_CONTINUES, NEEDLES
from ropewalk.evaluation.prose import FIRST_NAMES
from ropewalk.evaluation.randomness import SILVER, Stream, spread
from ropewalk.evaluation.tasks.needle import Fact
from ropewalk.evaluation.tasks.nolima import PAIRS

VERSION = 1
FACTS, FEWEST_FACTS = 8, 2
DISTRACTORS = 16
"""The lines of the same form that nobody asks about, where questions name one of many keys."""
FULL, AIM = 0.97, 0.99
"""The least part of a length that a document fills, and the part that it is made for."""
_ATTEMPTS = 8
CONTINUES = re.compile(MIXED_CONTINUES)
"""Text that would go on with an answer, which then would be another one."""

Count = Callable[[str], int]
"""Counts the tokens of a text."""


class Degree(NamedTuple):
    """A kind of questions, by how hard they are."""

    name: str
    words: str
    suits_small: bool = True


SINGLE = Degree("single", "single numbers, each by its name")
MIXED = Degree("mixed", "pass keys, numbers and UUIDs, each by its name", suits_small=False)
MULTIKEY = Degree("multikey", f"numbers, each by its name among {DISTRACTORS} others like it")
NOLIMA = Degree("nolima", "names, by questions that share no word with the fact", False)
DEGREES = (SINGLE, MIXED, MULTIKEY, NOLIMA)
"""From the easiest on."""


class Question(NamedTuple):
    """A question that is asked after the text, and the right answer."""

    text: str
    answer: str
    end: str
    depth: float
    """The depth of its fact: 0 at the beginning, 1 at the end of the text."""


@dataclass(frozen=True)
class Asking:
    """A text with its questions."""

    text: str
    questions: tuple[Question, ...]

    @cached_property
    def prompts(self) -> tuple[str, ...]:
        """The prompt of each question, which begins with the one before."""
        prompts, before = [], self.text
        for each in self.questions:
            prompts.append(before + each.text)
            before += each.text + each.answer + each.end
        return tuple(prompts)

    @property
    def whole(self) -> str:
        last = self.questions[-1]
        return self.prompts[-1] + last.answer + last.end


@dataclass(frozen=True)
class Library:
    """All documents of a run: pure functions of their degree, length and number."""

    documents: Sequence[Document]
    small: bool
    seed: int
    count: Count

    @property
    def degrees(self) -> tuple[Degree, ...]:
        return tuple(each for each in DEGREES if each.suits_small or not self.small)

    def facts_in(self, degree: Degree, reference: int) -> int:
        """The number of facts that take at most half of the short length; 0 if too few do."""
        facts, others = self._drawn(degree, 0, FACTS)
        if not facts:
            return 0
        lines = sum(self.count(line) for line in others)
        for number, fact in enumerate(facts):
            lines += self.count(f"{fact.line}{fact.question}{fact.answer}{fact.end}")
            if 2 * lines > reference:
                return number if number >= FEWEST_FACTS else 0
        return FACTS

    def document(self, degree: Degree, length: int, number: int, facts: int) -> Asking:
        """A document that fills a length; at every length its facts and their depths are equal."""
        drawn, others = self._drawn(degree, number, facts)
        random = Stream("depths", VERSION, self.seed, number)
        depths = [
            (i + spread(number, "depth", VERSION, self.seed, i)) / facts for i in range(facts)
        ]
        needles = [(depth, fact.line) for depth, fact in zip(depths, drawn, strict=True)]
        needles += [(random.below(2**20) / 2**20, line) for line in others]
        order = random.sample(facts, facts)
        place = spread(number, "place", VERSION, self.seed, step=SILVER)

        def made(words: int) -> Asking:
            text = insert(self._haystack.crop(place, words), needles)
            questions = tuple(
                Question(f.question, f.answer, f.end, text.index(f.line) / len(text))
                for f in (drawn[i] for i in order)
            )
            return Asking(text, questions)

        return _filled(made, self.count, length)

    @cached_property
    def _haystack(self) -> Haystack:
        return Haystack(self.documents)

    @cached_property
    def _unsaid(self) -> tuple[list[int], list[str]]:
        """The pairs and the first names of which no word is in the corpus."""
        words = {word for d in self.documents for word in re.findall(r"\w+", d.text.lower())}

        def absent(*texts: str) -> bool:
            return not any(part in words for text in texts for part in text.lower().split())

        pairs = [i for i, pair in enumerate(PAIRS) if absent(*pair.keywords)]
        return pairs, [name for name in FIRST_NAMES if absent(name)]

    def _drawn(self, degree: Degree, number: int, count: int) -> tuple[list[Fact], list[str]]:
        """The facts of a document, and lines that nobody asks about."""
        random = Stream("usable", VERSION, degree.name, self.seed, number)
        if degree is NOLIMA:
            return self._without_shared_words(random, count), []
        kinds = [(number + i) % len(KINDS) if degree is MIXED else NEEDLES for i in range(count)]
        others = DISTRACTORS if degree is MULTIKEY else 0
        facts: dict[str, Fact] = {}
        while len(facts) < count + others:
            kind = kinds[len(facts)] if len(facts) < count else NEEDLES
            fact = KINDS[kind](random, self.small)
            facts.setdefault(fact.question, fact)
        drawn = list(facts.values())
        return drawn[:count], [fact.line for fact in drawn[count:]]

    def _without_shared_words(self, random: Stream, count: int) -> list[Fact]:
        pairs, names = self._unsaid
        if min(len(pairs), len(names)) < count:
            return []
        drawn = (random.sample(len(each), count) for each in (pairs, names))
        return [
            Fact(
                f"Indeed, {PAIRS[pairs[i]].fact.format(names[j])}\n",
                f"Which character {(clue := PAIRS[pairs[i]].one)}?\n"
                f"The name of the character who {clue} is",
                f" {names[j]}",
                ".\n",
            )
            for i, j in zip(*drawn, strict=True)
        ]


def is_right(written: str, answer: str) -> bool:
    """True if a model wrote this answer, and no longer one."""
    written, answer = written.lstrip(), answer.strip()
    rest = written.removeprefix(answer)
    return written.startswith(answer) and CONTINUES.match(rest) is None


def _filled(made: Callable[[int], Asking], count: Count, length: int) -> Asking:
    """The document with as many words of text as fill a length."""
    best = made(0)
    bare = count(best.whole)
    if bare > length:
        raise InputError(
            f"the facts and questions of a document take {bare:,} tokens, more than {length:,}; "
            "give a longer length (`claimed`)"
        )
    fewest, most, words = 0, 4 * length, (length - bare) // 2
    for _ in range(_ATTEMPTS):
        if not fewest < words < most:
            words = (fewest + most) // 2
        asking = made(words)
        tokens = count(asking.whole)
        if tokens > length:
            most = words
        else:
            best, fewest = asking, words
            if tokens >= FULL * length:
                break
        words = int((AIM * length - bare) * words / max(1, tokens - bare))
    return best
