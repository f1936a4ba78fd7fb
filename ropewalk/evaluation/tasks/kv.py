"""Key-value retrieval: one of several pairs is asked for by its key.

A small model gets four lines `# key QX4821` between lines of text: the one asked for and three to
confuse it with, as many at every length. Others get a JSON object of UUIDs that fills the context.
"""

from __future__ import annotations

import json
import re

from ropewalk.evaluation.haystack import insert
from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.tasks import Draft, Scene, Task, asked_places
from ropewalk.evaluation.vocabulary import DIGITS, HEX, LETTERS

DISTRACTORS = 3
INTRODUCTION = "Remember the value of every key of this JSON object: one will be asked for.\n"
END = "\nThe key that is asked for, with its value:\n"


def draft(scene: Scene, units: int) -> Draft:
    """`units` words of text for a small model, `units` further pairs for others."""
    return questions(scene, units)[0]


def questions(scene: Scene, units: int) -> list[Draft]:
    """A draft for each of several keys."""
    return _between_text(scene, units) if scene.small else _of_uuids(scene, units)


def _between_text(scene: Scene, units: int) -> list[Draft]:
    random = scene.random
    drawn = random.sample(len(LETTERS) ** 2, 1 + DISTRACTORS)
    keys = [LETTERS[i // len(LETTERS)] + LETTERS[i % len(LETTERS)] for i in drawn]
    values = [random.word(DIGITS, 4) for _ in keys]
    depths = [scene.depth, *(random.below(2**20) / 2**20 for _ in range(DISTRACTORS))]
    lines = [f"# key {key}{value}\n" for key, value in zip(keys, values, strict=True)]
    text = insert(scene.haystack.crop(scene.place, units), zip(depths, lines, strict=True))
    drafts = []
    for key, value, line in zip(keys, values, lines, strict=True):
        prompt = f"{text}# key {key}"
        depth = prompt.index(line) / len(prompt)
        others = tuple(other for other in values if other != value)
        drafts.append(Draft(prompt, value, depth, words=units, distractors=others))
    return drafts


def _of_uuids(scene: Scene, units: int) -> list[Draft]:
    pairs = {uuid(scene.random): uuid(scene.random) for _ in range(units + 1)}
    text, keys = f"{INTRODUCTION}{json.dumps(pairs, indent=0)}{END}", list(pairs)
    drafts = []
    for key in (keys[place] for place in asked_places(scene.depth, len(keys))):
        prompt = f'{text}"{key}": "'
        others = [pairs[other] for other in keys[: DISTRACTORS + 1] if other != key]
        depth = prompt.index(key) / len(prompt)
        drafts.append(Draft(prompt, pairs[key], depth, distractors=tuple(others[:DISTRACTORS])))
    return drafts


def uuid(random: Stream) -> str:
    return "-".join(random.word(HEX, size) for size in (8, 4, 4, 4, 12))


def score(written: str, references: tuple[str, ...]) -> float:
    """1 if the answer begins with the value, quotes and spaces aside."""
    [value] = references
    return float(
        re.match(rf'[\s"]*{re.escape(value)}(?![\w-])', written, re.IGNORECASE) is not None
    )


TASKS = (
    Task(
        "kv",
        "One of several pairs is asked for by its key.",
        draft,
        score,
        version=2,
        continues=r"[\w-]",
        ends=r"[\w-][^\w-]",
        questions=questions,
    ),
)
