"""The stages of `extend`, one a file, and their order."""

from __future__ import annotations

from typing import Any

from ropewalk.pipeline.settings import ExtendSettings
from ropewalk.pipeline.stage import Stage
from ropewalk.pipeline.stages.compare import Compare
from ropewalk.pipeline.stages.evaluate import Evaluate, Untrained
from ropewalk.pipeline.stages.export import Export
from ropewalk.pipeline.stages.inspect import Inspect
from ropewalk.pipeline.stages.search import Search
from ropewalk.pipeline.stages.short import CheckShort
from ropewalk.pipeline.stages.train import Train
from ropewalk.pipeline.stages.verdict import Judge, JudgePlanned
from ropewalk.pipeline.stages.verify import Verify


def stages(settings: ExtendSettings) -> tuple[Stage[Any], ...]:
    """The stages in their order. A new one is a file in `stages/` and a row here."""
    measured = (settings.target_length, settings.lengths, settings.samples, settings.seed)
    evaluation: tuple[Stage[Any], ...] = (Evaluate(*measured),)
    if settings.train_steps:
        # Of a training that is asked for in any case, the schedule alone is judged by the samples
        # that are there.
        looks = settings.looks if settings.train_if_needed else 1
        evaluation = (
            Untrained(*measured),
            JudgePlanned(settings.target_length, settings.samples, settings.seed, looks),
            Train(
                settings.target_length,
                settings.train_steps,
                settings.learning_rate,
                settings.batch,
                settings.seed,
                settings.train_if_needed,
            ),
            Evaluate(*measured, trained=True),
        )
    return (
        Inspect(),
        Compare(),
        Search(settings.target_length, settings.evaluations, settings.seed, settings.short_limit),
        *evaluation,
        CheckShort(),
        Judge(settings.target_length, settings.samples, settings.seed, settings.looks),
        Export(),
        Verify(),
    )
