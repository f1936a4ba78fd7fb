"""The stages of `extend`, one a file, and their order."""

from __future__ import annotations

from typing import Any

from ropewalk.pipeline.settings import ExtendSettings
from ropewalk.pipeline.stage import Stage
from ropewalk.pipeline.stages.export import Export
from ropewalk.pipeline.stages.inspect import Inspect
from ropewalk.pipeline.stages.judge import JudgeChosen, JudgeFirst, JudgeTrained
from ropewalk.pipeline.stages.search import Search
from ropewalk.pipeline.stages.train import Train
from ropewalk.pipeline.stages.verify import Verify


def stages(settings: ExtendSettings) -> tuple[Stage[Any], ...]:
    """The stages in their order. A new one is a file in `stages/` and a row here."""
    judged = (settings.target_length, settings.documents, settings.seed)
    ordered: list[Stage[Any]] = [Inspect(), JudgeFirst(*judged)]
    if settings.evaluations is not None:
        ordered += [
            Search(
                settings.target_length, settings.evaluations, settings.seed, settings.short_limit
            ),
            JudgeChosen(*judged),
        ]
    if settings.train_steps:
        ordered += [
            Train(
                settings.target_length,
                settings.train_steps,
                settings.learning_rate,
                settings.batch,
                settings.seed,
            ),
            JudgeTrained(*judged),
        ]
    return (*ordered, Export(), Verify())
