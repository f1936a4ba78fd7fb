"""Retrieval tasks. To add one, add a file here that lists what it offers:

    '''What the tasks of this file ask for.'''

    def draft(scene: Scene, units: int) -> Draft:
        ...                 # the sample with so many units of filler

    def score(written: str, references: tuple[str, ...]) -> float:
        ...                 # how right the text is that a model wrote: from 0 to 1

    TASKS = (Task("name", "One line that says what is asked for.", draft, score),)

Nothing else needs to know of it: the command, the runner, the tables and the conformance tests read
what the `Task` declares. `draft` is called with several `units` until the budget is full, each time
with the same scene anew; so it must draw whatever does not depend on `units` first.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.errors import UnknownName
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.randomness import Stream
from ropewalk.records import TASK_SCORE
from ropewalk.registered import added
from ropewalk.values import table_in

PROMPTS: dict[str, str] = table_in(Path(__file__).with_name("prompts.json"))
"""By task, the words before its text. Changing one changes samples: raise the task's version."""
QUESTIONS = 4
"""Questions per context in mode shared_context, if it holds as many answers."""


@dataclass(frozen=True)
class Scene:
    """The material that a task draws a sample from."""

    random: Stream
    depth: float
    """The depth at which to hide the answer: 0 is the beginning, below 1 the end."""
    haystack: Haystack
    place: float
    """The place in the haystack to take text from, so that samples are far from each other."""
    small: bool
    """The model is a small one: no prose around the task, and tokens are dear."""
    length: int
    """The budget in tokens."""


class Draft(NamedTuple):
    """A prompt, the expected continuation, and its place in the prompt."""

    prompt: str
    answer: str
    depth: float | None = None
    """None if the answer has no one place."""
    words: int = 0
    """The words taken from the haystack: samples that read the same stretch are not independent."""
    parts: tuple[str, ...] = ()
    """The values in the answer, in order, if it has several: each is scored for itself."""
    references: tuple[str, ...] = ()
    """The references of `score`; by default the parts, or the answer."""
    distractors: tuple[str, ...] = ()
    """Some wrong answers in the prompt."""
    begun: str | None = None
    """The end of the prompt that begins the answer, and that a model says itself in a chat; None
    for its last line."""


@dataclass(frozen=True)
class Task:
    """A retrieval task, with all that is peculiar to it."""

    name: str
    summary: str
    draft: Callable[[Scene, int], Draft]
    score: Callable[[str, tuple[str, ...]], float]
    version: int = 1
    """Raised when its samples change."""
    continues: str = r"\w"
    """A pattern: an answer has not ended if it matches at the beginning of the next token."""
    metric: str = TASK_SCORE.name
    """The name of `score` in records."""
    allowance: int = 0
    """The number of tokens a large model may write; never fewer than the answer and a margin."""
    floor: int = 0
    """The shortest length at which the task is meaningful."""
    groups: tuple[str, ...] = ()
    """Names under which it is asked for, and averaged, together with others."""
    ends: str = ""
    """A pattern: a model has written its answer once this matches, and whatever it would add could
    not change the score. Empty if all that may be written counts."""
    questions: Callable[[Scene, int], list[Draft]] | None = None
    """Like `draft`, with further drafts that ask for other things in the same text, for mode
    shared_context: their prompts are the same up to the question."""
    fill: float = 1.0
    """The share of a length that is enough. At 1 the last unit that fits is looked for, which takes
    several encodings of the whole prompt; below 1 about one."""


def published(
    name: str,
    summary: str,
    draft: Callable[[Scene, int], Draft],
    score: Callable[[str, tuple[str, ...]], float],
    *groups: str,
    **others: Any,
) -> Task:
    """A task of a paper, whose metric has the name of its rule; a length nearly full is enough."""
    fields = {"metric": score.__name__, "fill": 0.98, "groups": groups, **others}
    return Task(name, summary, draft, score, **fields)


def asked_places(depth: float, count: int) -> list[int]:
    """The items, of so many in a text, that are asked for, evenly from the one at the depth on."""
    steps = ((depth + i / QUESTIONS) % 1.0 for i in range(QUESTIONS))
    return list(dict.fromkeys(int(step * count) for step in steps))


def every() -> Mapping[str, Task]:
    """All tasks by name: ropewalk's own, then those that a user registered."""
    return {**built_in(), **registered} if (registered := added("task")) else built_in()


@cache
def built_in() -> Mapping[str, Task]:
    """The tasks that the files of this folder list."""
    files = sorted(module.name for module in pkgutil.iter_modules(__path__))
    tasks = [task for f in files for task in importlib.import_module(f"{__name__}.{f}").TASKS]
    return {task.name: task for task in tasks}


def names() -> tuple[str, ...]:
    return tuple(every())


def groups() -> Mapping[str, tuple[str, ...]]:
    """The tasks of each group."""
    by_group: dict[str, list[str]] = {}
    for task in every().values():
        for group in task.groups:
            by_group.setdefault(group, []).append(task.name)
    return {group: tuple(members) for group, members in by_group.items()}


RETRIEVAL = "retrieval"
"""The mean over the tasks of an evaluation, if they are not a group."""


def means_of(wanted: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """The groups, and all retrieval tasks that are asked together, if they are not a group."""
    retrieval = tuple(name for name in wanted if name in every())
    of_groups = groups()
    if len(retrieval) < 2 or any(set(retrieval) == set(members) for members in of_groups.values()):
        return of_groups
    return {**of_groups, RETRIEVAL: retrieval}


def named(name: str) -> Task:
    """A task by its name."""
    if name not in every():
        raise UnknownName("task", name, names())
    return every()[name]
