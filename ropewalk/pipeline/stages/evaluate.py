"""Evaluate: the model as it is, each hand-designed method and the searched schedule, at all
lengths; and which of them is best at the target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InvalidValue
from ropewalk.evaluation import select
from ropewalk.evaluation.conditions import AS_IT_IS, Condition
from ropewalk.evaluation.results import MethodComparison, compare_methods, summarise
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.settings import Settings
from ropewalk.pipeline.stage import Cost, Forwards, Stage, Start, Work
from ropewalk.pipeline.stages.search import Search
from ropewalk.planning.hand_designed import HAND_DESIGNED, hand_designed
from ropewalk.progress import Progress, share
from ropewalk.records import EvalRecord, EvalResult
from ropewalk.reports.evaluation import figures
from ropewalk.reports.extend import METRICS, Line, extension_figure, lines
from ropewalk.reports.figures import keep_figures
from ropewalk.run_directory import RECORDS
from ropewalk.searching.model.results import SEARCHED
from ropewalk.values import Result, check_member

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS = ("perplexity", "passkey", "needle", "kv")


class AtTarget(NamedTuple):
    """One method at the target length."""

    retrieval: float
    """The share of the answers of all tasks that came back whole."""
    perplexity: float | None
    """None where no document is long enough."""

    def __str__(self) -> str:
        said = f"retrieval {self.retrieval:.0%}"
        return said if self.perplexity is None else f"{said}, perplexity {self.perplexity:.1f}"


@dataclass(frozen=True, eq=False)
class Evaluated(Result):
    """What was measured, and which schedule is best by it."""

    original_length: int
    results: tuple[EvalResult, ...]
    pooled: Mapping[str, tuple[Line, ...]]
    """All tasks of a metric together, by method and length."""
    comparisons: tuple[MethodComparison, ...]
    """Every pair of methods on the same samples, at the target."""
    at_target: Mapping[str, AtTarget]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_member(AS_IT_IS, self.at_target, "at_target")
        select.best(self._standings, HAND_DESIGNED)  # refuses where there is nothing to choose

    @property
    def chosen(self) -> str:
        """The best schedule, by the rule of evaluation/select.py."""
        return select.best(self._standings, HAND_DESIGNED)

    @property
    def best_hand_designed(self) -> str:
        return select.best_hand_designed(self._standings, HAND_DESIGNED)

    @property
    def _standings(self) -> dict[str, select.Standing]:
        return {
            name: select.Standing(
                math.inf if at.perplexity is None else at.perplexity, at.retrieval
            )
            for name, at in self.at_target.items()
            if name != AS_IT_IS
        }

    def derived(self) -> dict[str, object]:
        return {"chosen": self.chosen, "best_hand_designed": self.best_hand_designed}

    @property
    def before(self) -> AtTarget:
        """The model as it is."""
        return self.at_target[AS_IT_IS]

    @property
    def after(self) -> AtTarget:
        return self.at_target[self.chosen]

    def summary(self) -> str:
        return f"chosen: {self.chosen} ({self.after})"

    def figure(self) -> Figure:
        """Retrieval and perplexity by length, each method next to the others."""
        return extension_figure(
            self.pooled, chosen=self.chosen, original_length=self.original_length
        )


@dataclass(frozen=True)
class Evaluate(Stage[Evaluated]):
    target_length: int
    lengths: tuple[int, ...]
    samples: int
    """For each task, length and method."""
    seed: int = 0
    tasks: tuple[str, ...] = TASKS

    name = "evaluate"
    does = "perplexity, passkey, needle and key-value retrieval, before and after, by each method"
    result_type = Evaluated

    @property
    def settings(self) -> Settings:
        return Settings(self.tasks, self.lengths, self.samples, self.seed)

    def cost(self) -> Cost:
        methods = 2 + len(HAND_DESIGNED)  # the model as it is and the searched schedule too
        count = methods * len(self.tasks) * self.samples
        return Cost(tuple(Forwards(length, count) for length in self.lengths))

    def check(self, start: Start) -> None:
        Evaluation(start.loaded, start.to_report, self.settings).check()

    def run(self, work: Work, progress: Progress) -> Evaluated:
        evaluation = Evaluation(work.loaded, work.to_report, self.settings, work.notice)
        conditions = conditions_of(work)
        records = evaluation.run(
            conditions, work.directory.journal(RECORDS), share(progress, self.name)
        )
        methods = [condition.method for condition in conditions]
        found = self.evaluated(records, methods, work.present.original_length)

        def pictures() -> dict[str, Figure]:
            drawn = figures(found.results, records, original_length=found.original_length)
            kept = {f"figures/{name}": figure for name, figure in drawn.items()}
            return {**kept, "extend": found.figure()}

        keep_figures(pictures, work.directory.path, work.notice)
        return found

    def evaluated(
        self, records: Sequence[EvalRecord], methods: Iterable[str], original_length: int
    ) -> Evaluated:
        """What the records come to."""
        results = tuple(summarise(records))
        at_target = {name: self._at_target(records, results, name) for name in methods}
        return Evaluated(
            original_length=original_length,
            results=results,
            pooled={metric: tuple(lines(records, metric)) for metric in METRICS},
            comparisons=tuple(
                compare_methods(r for r in records if r.length == self.target_length)
            ),
            at_target=at_target,
        )

    def _at_target(
        self, records: Sequence[EvalRecord], results: Sequence[EvalResult], method: str
    ) -> AtTarget:
        own = [r for r in records if (r.method, r.length) == (method, self.target_length)]
        answered = [r.score for r in own if r.metric == "exact_match"]
        perplexities = [
            r.value
            for r in results
            if (r.method, r.length, r.metric) == (method, self.target_length, "perplexity")
        ]
        return AtTarget(
            float(np.mean(answered)) if answered else 0.0,
            perplexities[0] if perplexities else None,
        )


def conditions_of(work: Work) -> tuple[Condition, ...]:
    """The model as it is, each hand-designed method, and the schedule that the search found."""
    present, target = work.present, work.target_length
    layer = present.extended_layer
    found = [Condition(AS_IT_IS, present.id, None)]
    for method, schedule in hand_designed(present.longest(layer), target).items():
        plan = present.with_steps(layer, (PlanStep(target, schedule),))
        plan = replace(plan, provenance={"methods": method})
        found.append(Condition(method, plan.id, plan))
    searched = work.result(Search)
    if searched.legs[0].chosen == SEARCHED:
        found.append(Condition(SEARCHED, searched.plan.id, searched.plan))
    return tuple(found)


def chosen_plan(work: Work) -> ContextPlan:
    """The plan that the evaluation chose."""
    chosen = work.result(Evaluate).chosen
    plans = {c.method: c.plan for c in conditions_of(work) if c.plan is not None}
    if chosen not in plans:
        raise InvalidValue(
            f"{work.directory.path / Evaluate.name}.json: result.chosen",
            chosen,
            f"must be one of {', '.join(plans)}",
            f"remove {Evaluate.name}.json to have the stage done again",
        )
    return plans[chosen]
