"""One fact hidden in text, at any depth, and asked for at the end.

A small model is asked by beginning the hidden line again: `# key QX` should go on with `4821`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ropewalk.evaluation.haystack import insert
from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.tasks import Draft, Scene, Task
from ropewalk.evaluation.vocabulary import DIGITS, LETTERS, pair_name

CONTINUES = r"\d"


class Fact(NamedTuple):
    """A line that states it, and the text that asks for it, up to its answer."""

    line: str
    question: str
    answer: str
    end: str
    """The text that ends the line after the answer."""


def draw_fact(random: Stream, *, small: bool) -> Fact:
    """A fact in the wording that a model of the size understands."""
    if small:
        name = random.word(LETTERS, 2)
        answer = random.word(DIGITS, 4)
        return Fact(f"# key {name}{answer}\n", f"# key {name}", answer, "\n")
    name = pair_name(random)
    answer = f" {1_000_000 + random.below(9_000_000)}"
    question = (
        f"What is the special number of {name} that the text above mentions?\n"
        f"The special number of {name} is"
    )
    return Fact(f"The special number of {name} is{answer}.\n", question, answer, ".\n")


def draft(scene: Scene, units: int) -> Draft:
    """`units` words of text."""
    fact = draw_fact(scene.random, small=scene.small)
    text = insert(scene.haystack.crop(scene.place, units), [(scene.depth, fact.line)])
    prompt = text + fact.question
    return Draft(prompt, fact.answer, prompt.index(fact.line) / len(prompt), words=units)


def score(written: str, references: tuple[str, ...]) -> float:
    """The first integer is the number."""
    first = re.search(r"\d+", written)
    return float(first is not None and first[0] == references[0].strip())


TASKS = (
    Task(
        "needle",
        "One fact hidden in text, at any depth, and asked for at the end.",
        draft,
        score,
        continues=CONTINUES,
        ends=r"\d\D",
    ),
)
