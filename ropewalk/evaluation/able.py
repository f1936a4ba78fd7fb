"""The tasks that a model can do at all, so that a comparison at a length is worth its samples."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.errors import InputError
from ropewalk.evaluation.results import summarise
from ropewalk.evaluation.runner import Evaluation
from ropewalk.lengths import format_length
from ropewalk.progress import Progress, share
from ropewalk.records import AS_IT_IS, is_main_answer

AUTO = "auto"
"""Stands for all tasks of which a model answers at least `LEAST` at its own length."""
LEAST, SAMPLES = 0.25, 8
_APART = 2**40
"""Added to a seed: samples that choose tasks are never those that score them."""


def with_able_tasks(evaluation: Evaluation, progress: Progress) -> Evaluation:
    """The evaluation without the tasks that its unmodified model fails within its window."""
    settings, answerer = evaluation.settings, evaluation.answerer
    length = min(*settings.lengths, answerer.original_length)
    tried = replace(settings, lengths=(length,), samples=SAMPLES, seed=settings.seed + _APART)
    subjects = answerer.subjects
    first = next((s for s in subjects if s.method == AS_IT_IS), subjects[0])
    trial = replace(evaluation, settings=tried, notice=lambda _: None)
    records = trial.run(progress=share(progress, "choosing tasks"), subjects=[first])
    rates = {r.task: r.value for r in summarise(records) if is_main_answer(r)}
    rates = answerer.ranks.broadcast(rates)
    able = tuple(task for task in settings.tasks if rates.get(task, 0.0) >= LEAST)
    failed = [f"{task} ({rate:.0%})" for task, rate in rates.items() if task not in able]
    if not able:
        raise InputError(
            f"the model can do no task at {format_length(length)}: it answers fewer than "
            f"{LEAST:.0%} of {SAMPLES} questions right in each; name the tasks to run (`tasks`), "
            "or, if this length is too short for the tasks, give longer lengths"
        )
    if failed:
        evaluation.notice(
            f"left out, since the model answers fewer than {LEAST:.0%} of {SAMPLES} other samples "
            f"at {format_length(length)} right: {', '.join(failed)}"
        )
    return replace(evaluation, settings=replace(settings, tasks=able))
