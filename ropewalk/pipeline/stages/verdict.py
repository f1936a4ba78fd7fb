"""Verdict: whether the chosen schedule works at the target, asked until the answers decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.results import rates_of
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.evaluation.verdict import LOOKS, Look, blocks, look
from ropewalk.pipeline.results import Judged
from ropewalk.pipeline.stage import Cost, Forwards, Stage, Work
from ropewalk.pipeline.stages.evaluate import TASKS, Evaluate, Untrained
from ropewalk.pipeline.stages.search import Search
from ropewalk.progress import Progress, share
from ropewalk.records import PERPLEXITY, EvalRecord
from ropewalk.run_directory import RECORDS

MORE, PLANNED = "verdict.jsonl", "planned.jsonl"
"""The samples that the evaluation did not need, after a training and before it."""


@dataclass(frozen=True)
class Judge(Stage[Judged]):
    target_length: int
    samples: int
    """For each task, that the evaluation took; every look takes twice as many as the one before."""
    seed: int = 0
    looks: int = LOOKS
    tasks: tuple[str, ...] = tuple(task for task in TASKS if task != PERPLEXITY.name)

    name = "verdict"
    does = "whether the chosen schedule works at the target, with more samples where they can tell"
    early = "it ends as soon as the samples decide, and those of the evaluation may"
    result_type = Judged
    over_ranks = True
    of: ClassVar[type[Evaluate]] = Evaluate
    """The evaluation whose schedule is judged."""
    journals: ClassVar[tuple[str, ...]] = (RECORDS, PLANNED)
    """Samples that are there already."""
    more: ClassVar[str] = MORE

    def cost(self, window: int) -> Cost:
        more = blocks(self.samples, self.looks)[-1] - self.samples
        return Cost((Forwards(self.target_length, len(self.tasks) * more),), least=())

    def run(self, work: Work, progress: Progress) -> Judged:
        chosen, plan = work.result(self.of).chosen, work.result(Search).plan
        answerer = work.answerer(self.name, [Condition(chosen, plan.id, plan)])
        kept = {
            name: work.directory.journal(name).records
            for name in self.journals
            if work.held is not None and (work.held.path / name).exists()
        }
        scored: list[EvalRecord] = []
        for name, own in answerer.shared(kept).items():
            scored = EvalRecord.of_lines(own, name, scored)
        known = [
            record
            for record in scored
            if record.method == chosen
            and record.length == self.target_length
            and record.task in self.tasks
        ]
        journal, tell = work.journal(self.more), share(progress, self.name)
        asked = [name for name in self.tasks if any(r.task == name for r in known)]
        taken = []
        for samples in blocks(self.samples, self.looks) if asked else ():
            settings = self._settings(samples, asked)
            evaluation = Evaluation(answerer, work.to_report, settings, work.notice)
            records = evaluation.run(journal, tell, known)
            rates = rates_of(self._of(records, samples), asked)
            assert rates is not None, "every task that is asked has answers"
            taken.append(Look(*answerer.shared(look(rates))))
            if taken[-1].verdict != "undecided":
                break
        return Judged(chosen, self.target_length, tuple(taken))

    def _settings(self, samples: int, tasks: Sequence[str]) -> EvaluationSettings:
        return EvaluationSettings(tuple(tasks), (self.target_length,), samples, self.seed)

    def _of(self, records: Sequence[EvalRecord], samples: int) -> list[EvalRecord]:
        """The first samples of each task and metric: a resumed run may know more than this look."""
        found, count = [], dict[tuple[str, str], int]()
        for record in records:
            key = record.task, record.metric
            count[key] = count.get(key, 0) + 1
            if count[key] <= samples:
                found.append(record)
        return found


@dataclass(frozen=True)
class JudgePlanned(Judge):
    """The same of the schedule without training."""

    name = "planned"
    does = "whether the chosen schedule works at the target without training"
    of = Untrained
    journals = (RECORDS,)
    more = PLANNED
