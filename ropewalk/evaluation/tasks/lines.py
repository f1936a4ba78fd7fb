"""Long-eval: a record of lines that look alike, each with a number; one line is asked for.

The filler is more lines, so a longer context also holds more to confuse the line with. A small
model gets lines without the words between a name and its number.
"""

from __future__ import annotations

import re

from ropewalk.errors import Unsupported
from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, Task, asked_places
from ropewalk.evaluation.vocabulary import NAMES, pair_name

INTRODUCTION = PROMPTS["lines"]
MOST_LINES = NAMES // 2  # so that drawing an unused name stays quick
END = "That was the record. One of its lines again:\n"


def draft(scene: Scene, units: int) -> Draft:
    """`units` lines besides the one that is asked for."""
    return questions(scene, units)[0]


def questions(scene: Scene, units: int) -> list[Draft]:
    """A draft for each of several lines."""
    if units >= MOST_LINES:
        raise Unsupported(
            f"the task `lines` has names for {MOST_LINES} lines only, and this context holds more; "
            "give a shorter length, or another task"
        )
    numbers: dict[str, int] = {}
    while len(numbers) <= units:
        name = pair_name(scene.random)
        if name not in numbers:
            numbers[name] = 1 + scene.random.below(50_000)
    words = "" if scene.small else ": REGISTER_CONTENT is"
    lines = {f"line {name}{words} <": number for name, number in numbers.items()}
    record = "".join(f"{line}{number}>\n" for line, number in lines.items())
    text, drafts, items = record if scene.small else INTRODUCTION + record + END, [], list(lines)
    for question in (items[place] for place in asked_places(scene.depth, len(items))):
        prompt, number = text + question, lines[question]
        others = [str(n) for n in numbers.values() if n != number]
        depth = prompt.index(question) / len(prompt)
        drafts.append(Draft(prompt, str(number), depth, distractors=tuple(others[:3])))
    return drafts


def score(written: str, references: tuple[str, ...]) -> float:
    """1 if the last integer before the line ends is the number."""
    numbers = re.findall(r"\d+", re.split(r"[>\n]", written, maxsplit=1)[0])
    return float(numbers[-1:] == list(references))


TASKS = (
    Task(
        "lines",
        "One of many lines that look alike is asked for by its name.",
        draft,
        score,
        version=2,
        continues=r"[\d,.]",  # a number after a comma would be the last one of the line
        ends=r"[>\n]",
        questions=questions,
    ),
)
