r"""Retrieval tasks, one a file. To add one, add a file here that says:

    '''One line that says what is retrieved.'''

    VERSION = 1                            # to be raised when its samples change
    CONTINUES = r"\d"                      # text after an answer that makes it another answer

    def draft(scene: Scene, units: int) -> Draft:
        ...                                # the sample with so many units of filler

    def score(written: str, answer: str) -> bool:
        ...                                # whether what a model wrote holds the answer

Nothing else needs to know of it: the command, the runner and the conformance tests find it by its
file's name. `draft` is called with growing `units` until the budget is full, each time with the
same scene anew; so it must draw whatever does not depend on `units` first.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.errors import UnknownName
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.randomness import Stream


@dataclass(frozen=True)
class Scene:
    """What a task may draw a sample from."""

    random: Stream
    depth: float
    """Where to hide the answer: 0 is the beginning, below 1 the end."""
    haystack: Haystack
    place: float
    """Where in the haystack to take text from, so that samples are far from each other."""
    small: bool
    """The model is a small one: no prose around the task, and tokens are dear."""


class Draft(NamedTuple):
    """A prompt, what a model should go on with, and where in the prompt that stands."""

    prompt: str
    answer: str
    depth: float
    words: int = 0
    """Of the haystack: samples that read the same stretch of it are not independent."""


@dataclass(frozen=True)
class Task:
    """A retrieval task."""

    name: str
    summary: str
    version: int
    draft: Callable[[Scene, int], Draft]
    score: Callable[[str, str], bool]
    continues: str
    """A pattern: an answer has not ended where it matches at the beginning of the next token."""


def names() -> tuple[str, ...]:
    """All tasks: the files of this folder."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def named(name: str) -> Task:
    """A task by its name."""
    if name not in names():
        raise UnknownName("task", name, names())
    module = importlib.import_module(f"{__name__}.{name}")
    summary = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
    return Task(name, summary, module.VERSION, module.draft, module.score, module.CONTINUES)
