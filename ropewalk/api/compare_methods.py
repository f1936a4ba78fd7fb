"""`compare_methods`: every scaling method at one target, ranked by what measurement confirmed."""

from __future__ import annotations

from ropewalk.api.common import (
    AfterTraining,
    AllowDownload,
    FromOriginal,
    Layers,
    ModelToRead,
    Strict,
    TargetLength,
    TrainedLength,
)
from ropewalk.arguments import as_length
from ropewalk.models.source import resolve, stated_assumptions
from ropewalk.options import called, request
from ropewalk.planning.compared import Comparison, compared
from ropewalk.planning.request import PlanRequest
from ropewalk.progress import Notice, Progress, log_notice, shown


def compare_methods(
    model: ModelToRead,
    to: TargetLength,
    *,
    layers: Layers = None,
    from_original: FromOriginal = False,
    trained_length: TrainedLength = None,
    after_training: AfterTraining = False,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> Comparison:
    """Plan with every method, and rank the plans.

    The ranks follow two lists of methods, ordered by the mean that small models retrieved: for use
    of the model as it is, and for use after fine-tuning at the target (`after_training`). A method
    that was not measured has no rank, and comes after those that were.
    """
    values = locals()
    with called("compare_methods", compare_methods, values) as (_, progress):
        source = resolve(model, allow_download=allow_download)
        if trained_length is not None:
            source = source.with_trained_length(as_length(trained_length, "trained_length"))
        stated_assumptions(source, notice, strict=strict)
        length = as_length(to, "to")
        asked = request(PlanRequest, compare_methods, values, source=source, target=length)
        return compared(asked, progress, notice)
