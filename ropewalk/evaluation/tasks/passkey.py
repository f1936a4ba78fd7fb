"""A five-digit pass key in a lot of irrelevant text (the prompt of LongRoPE's appendix).

The filler is five sentences repeated x times before the key and y times after it. What is left of
the budget is filled with the first few of the five sentences, so that a prompt is as long as asked.
"""

from __future__ import annotations

import re

from ropewalk.evaluation.prose import FILLER
from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, Task

TASK = PROMPTS["passkey"]
NEEDLE = "The pass key is {0}. Remember it. {0} is the pass key."
BEGUN = " The pass key is"
QUESTION = f"What is the pass key?{BEGUN}"


def draft(scene: Scene, units: int) -> Draft:
    """`units` sentences of filler."""
    passkey = 10_000 + scene.random.below(90_000)
    whole, rest = divmod(units, len(FILLER))
    before = min(int(scene.depth * (whole + 1)), whole)
    paragraphs = [
        TASK,
        " ".join(FILLER * before),
        NEEDLE.format(passkey),
        " ".join(FILLER * (whole - before) + FILLER[:rest]),
        QUESTION,
    ]
    prompt = "\n".join(filter(None, paragraphs))
    place = prompt.index(str(passkey)) / len(prompt)
    return Draft(prompt, f" {passkey}", place, begun=BEGUN)


def score(written: str, references: tuple[str, ...]) -> float:
    """1 if the first integer is the key, and no list of keys begins with it."""
    first = re.search(r"\d+(?:[\s,;|/+-]+\d{5}(?!\d))*", written)
    return float(first is not None and first[0] == references[0].strip())


TASKS = (
    Task(
        "passkey",
        "A five-digit pass key in a lot of irrelevant text (the prompt of LongRoPE's appendix).",
        draft,
        score,
        continues=r"\d",
        ends=r"\d\W*[^\W\d]",
    ),
)
