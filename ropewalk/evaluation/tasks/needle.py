"""One fact hidden in text, at any depth, and asked for at the end.

A small model is asked by beginning the hidden line again: `# key QX` should go on with `4821`.
"""

from __future__ import annotations

import re

from ropewalk.evaluation.haystack import insert
from ropewalk.evaluation.tasks import Draft, Scene
from ropewalk.evaluation.vocabulary import DIGITS, LETTERS, pair_name

VERSION = 1


def draft(scene: Scene, units: int) -> Draft:
    """`units` words of text."""
    if scene.small:
        name = scene.random.word(LETTERS, 2)
        answer = scene.random.word(DIGITS, 4)
        hidden, asked = f"# key {name}{answer}\n", f"# key {name}"
    else:
        name = pair_name(scene.random)
        answer = f" {1_000_000 + scene.random.below(9_000_000)}"
        hidden = f"The special number of {name} is{answer}.\n"
        asked = (
            f"What is the special number of {name} that the text above mentions?\n"
            f"The special number of {name} is"
        )
    text = insert(scene.haystack.crop(scene.random, units), [(scene.depth, hidden)])
    prompt = text + asked
    return Draft(prompt, answer, prompt.index(hidden) / len(prompt))


def score(written: str, answer: str) -> bool:
    """The first integer is the number."""
    first = re.search(r"\d+", written)
    return first is not None and first[0] == answer.strip()
