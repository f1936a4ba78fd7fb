"""NoLiMa (Modarressi et al., ICML 2025): a fact that shares no word with the question about it.

Source: the paper (arXiv 2502.05167) and its repository. The published pairs are for research that
is not commercial, so these are our own, in two forms as there: one step of knowledge leads from the
fact to the question, or two. studies/papers.md lists the differences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ropewalk.errors import Unsupported
from ropewalk.evaluation.haystack import insert
from ropewalk.evaluation.prose import FIRST_NAMES
from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, published


class Pair(NamedTuple):
    """A fact about somebody, and the ends of the questions one and two steps away."""

    fact: str
    one: str
    two: str
    keywords: Sequence[str]
    """Words of the text around that would answer or hint, besides the name."""


_ROWS = json.loads(Path(__file__).with_name("nolima.json").read_text(encoding="utf-8"))
PAIRS = tuple(Pair(**row) for row in _ROWS)
INTRODUCTION = PROMPTS["nolima"]


@dataclass(frozen=True)
class NolimaForm:
    steps: int
    """The steps of knowledge between the fact and the question."""

    def draft(self, scene: Scene, units: int) -> Draft:
        """`units` words of text, without the lines that hold the name or a word of the pair."""
        pair, name = scene.random.choice(PAIRS), scene.random.choice(FIRST_NAMES)
        fact = f"Indeed, {pair.fact.format(name)}\n"
        text = _without(scene.haystack.crop(scene.place, units), (name, *pair.keywords))
        clue = pair.one if self.steps == 1 else pair.two
        question = f"Which character {clue}?\nThe name of the character who {clue} is"
        before = "" if scene.small else INTRODUCTION
        prompt = f"{before}{insert(text, [(scene.depth, fact)]).rstrip()}\n\n{question}"
        return Draft(prompt, f" {name}", prompt.index(fact.strip()) / len(prompt), words=units)


def _without(lines: Sequence[str], words: Sequence[str]) -> list[str]:
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})", re.IGNORECASE)
    kept = [line for line in lines if not pattern.search(line)]
    if lines and not any(line.strip() for line in kept):
        raise Unsupported(
            f"each line of the corpus contains one of the words {', '.join(words)}, so that "
            "nothing can be hidden in it; give another corpus, or leave out the task"
        )
    return kept


def contains(written: str, references: tuple[str, ...]) -> float:
    """The published rule, the name occurs in the answer, and no other name does: a list of all
    characters is no answer."""
    right = [reference.strip() for reference in references]
    others = set(re.findall(r"\w+", written)) & {*FIRST_NAMES} - {*right}
    return float(not others and any(name in written for name in right))


TASKS = tuple(
    published(
        f"nolima-{name}-syn",
        f"A fact that shares no word with its question; {steps} of knowledge between them.",
        NolimaForm(count).draft,
        contains,
        "nolima-syn",
    )
    for count, name, steps in ((1, "onehop", "one step"), (2, "twohop", "two steps"))
)
