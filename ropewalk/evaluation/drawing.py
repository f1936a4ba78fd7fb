"""The samples that an evaluation asks of a task, whether a model answers in process or a server."""

from __future__ import annotations

from collections.abc import Callable

from ropewalk.errors import Unsupported
from ropewalk.evaluation import samples
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.samples import DoesNotFit, Sample
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.evaluation.tasks import Task


def drawn(
    task: Task,
    encoder: Encoder,
    haystack: Haystack,
    length: int,
    settings: EvaluationSettings,
    notice: Callable[[str], None],
) -> list[Sample]:
    """All samples of a task at a length, or none, with a notice, if one of them does not fit.

    Those that do fit would be the shortest, and their score not that of the task.
    """
    shared = settings.mode == "shared_context"
    if shared and task.questions is None:
        if length == settings.lengths[0]:  # it is so at every length
            notice(f"left out: {task.name} has only one question on a text (mode shared_context)")
        return []
    try:
        return list(
            samples.generate(
                *(task, encoder, haystack, length, settings.samples, settings.seed), shared=shared
            )
        )
    except (DoesNotFit, Unsupported) as error:
        notice(f"left out: {error}")
        return []
