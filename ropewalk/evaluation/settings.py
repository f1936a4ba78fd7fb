"""The settings of an evaluation, checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.evaluation import perplexity, tasks
from ropewalk.lengths import check_measured
from ropewalk.records import FACTS, MODES, Mode
from ropewalk.untrusted import check_count, one_of, whole_number


@dataclass(frozen=True)
class EvaluationSettings:
    """The settings of a measurement. Equal settings give equal samples."""

    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    samples: int
    seed: int = 0
    mode: Mode = "teacher_forced"

    def __post_init__(self) -> None:
        for name in self.tasks:
            if name not in task_names():
                raise UnknownName("task", name, task_names())
        if not self.tasks:
            raise InvalidValue("tasks", self.tasks, "must not be empty", "name a task")
        for length in self.lengths:
            if length < 2:
                raise InvalidValue("lengths", length, "must be at least 2", "give longer ones")
            check_measured(length, "lengths")
        if not self.lengths:
            raise InvalidValue("lengths", self.lengths, "must not be empty", "name one")
        check_count(self.samples, "samples")
        whole_number(self.seed, "seed")
        one_of(self.mode, MODES, "mode")
        if self.mode == "shared_context" and not any(map(shares, self.tasks)):
            raise InvalidValue(
                "tasks",
                ", ".join(self.tasks),
                "none of these has several questions on one text, which mode shared_context needs",
                f"add one of {', '.join(filter(shares, tasks.names()))}",
            )


def shares(name: str) -> bool:
    """True if a task has several questions on one text."""
    return name in tasks.every() and tasks.named(name).questions is not None


def task_names() -> tuple[str, ...]:
    return (*perplexity.DEFINITIONS, FACTS, *tasks.names())


def groups_of(wanted: Sequence[str], mode: str) -> dict[str, tuple[str, ...]]:
    """The groups whose means a run shows, without the tasks that its mode always leaves out."""
    scored = [name for name in wanted if mode != "shared_context" or shares(name)]
    return {**tasks.groups(), **tasks.means_of(scored)}


def expanded(names: Sequence[str]) -> tuple[str, ...]:
    """The tasks that are named, with the members of a group in place of its name."""
    groups = tasks.groups()
    for name in names:
        if name not in groups and name not in task_names():
            raise UnknownName("task", name, (*task_names(), *groups))
    return tuple(dict.fromkeys(task for name in names for task in groups.get(name, (name,))))
