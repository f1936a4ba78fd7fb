"""Evaluate: the unmodified model, the chosen schedule and the methods that were not clearly worse,
at all lengths, on text that decided nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep
from ropewalk.evaluation.conclusion import Evaluated, concluded
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.pipeline.results import AtTarget, EvaluatedExtension
from ropewalk.pipeline.stage import Cost, Forwards, Stage, Start, Work
from ropewalk.pipeline.stages.search import Search
from ropewalk.planning.hand_designed import HAND_DESIGNED
from ropewalk.progress import Progress, share
from ropewalk.records import AS_IT_IS, EXACT_MATCH, NLL, EvalRecord
from ropewalk.reports.extend import METRICS, Bar, MethodBars, lines
from ropewalk.reports.figures import keep_figures
from ropewalk.run_directory import RECORDS
from ropewalk.searching.model.results import Leg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS: tuple[str, ...] = ("perplexity", "passkey", "needle", "kv")
TRAINED = "trained"
"""The name of the trained model under the chosen schedule, among methods."""
TRAINING = "train"
"""The stage whose result comes between the two evaluations."""


@dataclass(frozen=True)
class Evaluate(Stage[EvaluatedExtension]):
    target_length: int
    lengths: tuple[int, ...]
    samples: int
    """The samples of each task, length and method."""
    seed: int = 0
    tasks: tuple[str, ...] = TASKS
    trained: bool = False
    """After a training, only the trained model is measured: the records of the others are there."""

    name = "evaluate"
    does = "perplexity, passkey, needle and key-value retrieval, before and after"
    early = "methods that the search finds clearly worse are left out"
    result_type = EvaluatedExtension
    over_ranks = True

    @property
    def settings(self) -> EvaluationSettings:
        return EvaluationSettings(self.tasks, self.lengths, self.samples, self.seed)

    def cost(self, window: int) -> Cost:
        # With the model as it is and the searched one; its training may not be needed.
        most, least = (1, 0) if self.trained else (2 + len(HAND_DESIGNED), 2)
        count = len(self.tasks) * self.samples
        return Cost(
            tuple(Forwards(length, most * count) for length in self.lengths),
            least=tuple(Forwards(length, least * count) for length in self.lengths),
        )

    def check(self, start: Start) -> None:
        Evaluation(start.answerer(self.name, ()), start.to_report, self.settings).check()

    def run(self, work: Work, progress: Progress) -> EvaluatedExtension | None:
        answerer = work.answerer(self.name, self._conditions(work))
        evaluation = Evaluation(answerer, work.to_report, self.settings, work.notice)
        records = evaluation.run(work.journal(RECORDS), share(progress, self.name))
        if work.held is None:  # the first rank has all answers
            return None
        [leg] = work.result(Search).legs
        conclusion = concluded(answerer, self.settings, records)
        found = self.evaluated(conclusion, records, leg, self._chosen(work))

        def pictures() -> dict[str, Figure]:
            kept = {f"figures/{name}": drawn for name, drawn in found.figures(records).items()}
            return {**kept, "extend": found.figure()}

        keep_figures(pictures, work.directory.path, work.notice)
        return found

    def _conditions(self, work: Work) -> tuple[Condition, ...]:
        if self._chosen(work) != TRAINED:
            return conditions_of(work)
        plan = work.result(Search).plan
        return (Condition(TRAINED, plan.id, plan),)

    def _chosen(self, work: Work) -> str:
        """The name of what is exported: a schedule's, or that of the model after a training."""
        [leg] = work.result(Search).legs
        return TRAINED if self.trained and TRAINING in work.results else leg.chosen

    def evaluated(
        self, found: Evaluated, records: Sequence[EvalRecord], leg: Leg, chosen: str
    ) -> EvaluatedExtension:
        """The conclusion from the records, with the chosen schedule named."""
        pooled = {metric: tuple(lines(records, metric)) for metric in METRICS}
        return EvaluatedExtension(
            **vars(found),
            chosen=chosen,
            best_hand_designed=leg.best_hand_designed,
            pooled=pooled,
            at_target={
                method: self._at_target(pooled, method)
                for method in dict.fromkeys(record.method for record in records)
            },
        )

    def _at_target(self, pooled: Mapping[str, Sequence[MethodBars]], method: str) -> AtTarget:
        def bar(metric: str) -> Bar | None:
            own = [line.bars for line in pooled[metric] if line.method == method]
            at = [bar for bars in own for bar in bars if bar.length == self.target_length]
            return at[0] if at else None

        retrieval, perplexity = bar(EXACT_MATCH.name), bar(NLL.name)
        return AtTarget(
            *((None, None, None) if retrieval is None else retrieval[1:]),
            *((None, None, None) if perplexity is None else perplexity[1:]),
        )


@dataclass(frozen=True)
class Untrained(Evaluate):
    """The evaluation before training, of the model as it came."""

    name = "untrained"
    does = "the same before training: perplexity, passkey, needle and key-value retrieval"


def conditions_of(work: Work) -> tuple[Condition, ...]:
    """The unmodified model, the hand-designed methods that the search stage did not rule out, and
    the searched schedule if it was chosen."""
    present, found = work.present, work.result(Search)
    layer, [leg] = present.extended_layer, found.legs
    plans = {}
    for method in leg.remaining:
        step = PlanStep(work.target_length, leg.baselines[method].schedule)
        plan = present.with_steps(layer, (step,))
        plans[method] = replace(plan, provenance={"methods": method})
    plans[leg.chosen] = found.plan
    return (
        Condition(AS_IT_IS, present.id, None),
        *(Condition(method, plan.id, plan) for method, plan in plans.items()),
    )
