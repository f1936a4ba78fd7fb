"""RULER's two tasks of questions: one paragraph among many answers, or one after another.

People, firms and towns are made up. A small model gets lines of one fact, and the asked one again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ropewalk.evaluation.haystack import insert
from ropewalk.evaluation.prose import (
    BEGINNINGS,
    NAME_ENDINGS,
    PLACE_ENDINGS,
    TRADES,
    person,
    surname,
    town,
)
from ropewalk.evaluation.references import string_match_part
from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, published
from ropewalk.evaluation.vocabulary import ADJECTIVES, NOUNS

INTRODUCTION = PROMPTS["ruler_questions"]
WORKS = " Works"
_TOWN, _TRADE, _NAME, _NOUN = map("|".join, (PLACE_ENDINGS, TRADES, NAME_ENDINGS, NOUNS))
_BEGUN = rf"\b(?:{'|'.join(BEGINNINGS)})"
_KINDS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_BEGUN}(?:{_TOWN})",
        rf"\b(?:{_TRADE})",
        rf"{_BEGUN}(?:{_NAME}) (?:{_NOUN})(?:{WORKS})?",
    )
)
"""Towns, trades and firms."""


class Person(NamedTuple):
    name: str
    town: str
    trade: str
    firm: str
    thing: str

    @property
    def paragraph(self) -> str:
        return (
            f"{self.name} was born in {self.town} and learned the trade of a {self.trade} there. "
            f"Later {self.name} joined the {self.firm} and became known for {self.thing}.\n"
        )


class Firm(NamedTuple):
    name: str
    town: str
    thing: str

    @property
    def paragraph(self) -> str:
        return (
            f"The {self.name} began with {self.thing}. Its main office stands in {self.town}, "
            "where most of its people live.\n"
        )


def one_paragraph(scene: Scene, units: int) -> Draft:
    """`units` paragraphs around the one that answers."""
    kind = scene.random.below(3)
    people = _people(scene, 1 + units)
    who = people[0]
    if scene.small:
        lines = [f"{p.name} lives in {p.town}\n" for p in people]
        prompt = f"{_ordered(scene, lines)}{who.name} lives in"
        values = [p.town for p in people]
    else:
        ask, values = (
            (f"In which town was {who.name} born?", [p.town for p in people]),
            (f"Which trade did {who.name} learn?", [p.trade for p in people]),
            (f"Which firm did {who.name} join?", [p.firm for p in people]),
        )[kind]
        prompt = _prompt(_ordered(scene, [p.paragraph for p in people]), ask)
    # The answer may leave out the end of a firm's name.
    references = tuple(dict.fromkeys((values[0], values[0].removesuffix(WORKS))))
    return _draft(prompt, values, references, people[0].name)


def two_paragraphs(scene: Scene, units: int) -> Draft:
    """`units` paragraphs around the two that answer together, of a person and of a firm."""
    firms: dict[str, Firm] = {}
    people = _people(scene, 1 + (units + 1) // 2)
    for i, [a, b] in enumerate(scene.random.rows(len(people), 2)):
        if i <= units - len(people) + 1 and people[i].firm not in firms:
            firms[people[i].firm] = Firm(people[i].firm, town(a), _thing(b))
    who, works = people[0], firms[people[0].firm]
    if scene.small:
        lines = [f"The {f.name} is in {f.town}\n" for f in firms.values()]
        others = [f"{p.name} joined the {p.firm}\n" for p in people]
        prompt = f"{_mixed(scene, lines, others)}The firm of {who.name} is in"
    else:
        lines = [f.paragraph for f in firms.values()]
        text = _mixed(scene, lines, [p.paragraph for p in people])
        ask = f"In which town is the main office of the firm that {who.name} joined?"
        prompt = _prompt(text, ask)
    values = [firm.town for firm in firms.values()]
    return _draft(prompt, values, (works.town,), f"The {works.name}")


def first_named(written: str, references: tuple[str, ...]) -> float:
    """RULER's rule, up to the first value that the text names: a list of all is no answer."""
    kind = next((each for each in _KINDS if each.fullmatch(references[0])), None)
    first = kind and kind.search(written)
    return string_match_part(written[: first.end()] if first else written, references)


def _people(scene: Scene, count: int) -> list[Person]:
    """People of different names; the first is the same however many there are."""
    by_name: dict[str, Person] = {}
    for a, b, c, d, e in scene.random.rows(count, 5):
        name, firm = person(a), f"{surname(d)} {NOUNS[(d >> 16) % len(NOUNS)].title()}{WORKS}"
        by_name.setdefault(name, Person(name, town(b), TRADES[c % len(TRADES)], firm, _thing(e)))
    return list(by_name.values())


def _thing(number: int) -> str:
    return f"the {ADJECTIVES[number % len(ADJECTIVES)]} {NOUNS[(number >> 8) % len(NOUNS)]}"


def _ordered(scene: Scene, paragraphs: list[str]) -> str:
    """The first paragraph at the depth of the scene."""
    return insert(paragraphs[1:], [(scene.depth, paragraphs[0])])


def _mixed(scene: Scene, firms: list[str], people: list[str]) -> str:
    """Both kinds of paragraphs, that of the firm at the depth of the scene."""
    others = scene.random.shuffled([*firms[1:], *people])
    return insert(others, [(scene.depth, firms[0])])


def _prompt(text: str, ask: str) -> str:
    return f"{INTRODUCTION}{text}\nAnswer from the paragraphs above.\nQuestion: {ask}\nAnswer:"


def _draft(prompt: str, values: list[str], references: tuple[str, ...], place: str) -> Draft:
    """The first value answers; the depth is that of the paragraph that holds it."""
    wrong = [value for value in values[1:] if value not in references]
    return Draft(
        prompt,
        f" {values[0]}",
        depth=prompt.index(place) / len(prompt),
        references=references,
        distractors=tuple(wrong[:3]),
    )


TASKS = tuple(
    published(
        name,
        summary,
        draft,
        first_named,
        *("ruler-syn", "ruler-11-syn"),
        metric="string_match_part",
        allowance=32,
    )
    for name, summary, draft in (
        ("qa-1-syn", "A question that one of many paragraphs answers.", one_paragraph),
        ("qa-2-syn", "A question that two of many paragraphs answer together.", two_paragraphs),
    )
)
