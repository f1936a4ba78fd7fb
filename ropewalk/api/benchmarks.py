"""`benchmarks`: public benchmarks of a model under several plans, through lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.api.common import (
    Device,
    Dtype,
    MethodNames,
    ModelToRun,
    Plans,
    Strict,
    Target,
    as_length,
    as_list,
    as_path,
    as_plan,
)
from ropewalk.evaluation.conditions import check_methods, conditions_of
from ropewalk.evaluation.statistics import (
    Comparison,
    Interval,
    compare_mean_rates,
    compare_means,
    compare_rates,
    holm,
    mean_interval,
    mean_rate_interval,
    rate_interval,
)
from ropewalk.extras import required_by
from ropewalk.models.source import runnable
from ropewalk.options import Option
from ropewalk.progress import Notice, Progress, log_notice, share, silent
from ropewalk.untrusted import check_count
from ropewalk.values import Result, Value, check_filled

if TYPE_CHECKING:
    from ropewalk.evaluation.conditions import Condition
    from ropewalk.evaluation.public_benchmarks import BenchmarkScores

NAMES = ("hellaswag", "mmlu", "arc-c", "truthfulqa")


@dataclass(frozen=True, eq=False)
class BenchmarkResult(Value):
    """One metric of one task or group, under one plan."""

    method: str
    plan_id: str
    task: str
    metric: str
    """With the harness's filter after a comma, unless that is `none`."""
    value: float
    """The value as the harness reports it."""
    low: float | None
    """The 95% interval over questions; None for fewer than five, and if the value is not a mean of
    their scores."""
    high: float | None
    samples: int


@dataclass(frozen=True, eq=False)
class BenchmarkComparison(Value):
    """Two plans on the same questions."""

    task: str
    metric: str
    first: str
    second: str
    comparison: Comparison
    """The mean of the first minus that of the second."""
    adjusted_p: float | None
    """Holm's, over all comparisons made together."""


@dataclass(frozen=True, eq=False)
class Benchmarked(Result):
    """Scores of public benchmarks, with paired comparisons of the plans."""

    model: str
    harness: str
    """The version of lm-evaluation-harness."""
    results: tuple[BenchmarkResult, ...]
    comparisons: tuple[BenchmarkComparison, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_filled(self.results, "results")

    def summary(self) -> str:
        parts = [f"{r.method} {r.task} {r.metric} {r.value:.3f}" for r in self.results]
        return f"{self.model}, by lm-evaluation-harness {self.harness}: {', '.join(parts)}."


def benchmarks(
    model: ModelToRun,
    names: Annotated[
        Sequence[str],
        Option(
            "Some of hellaswag, mmlu, arc-c, truthfulqa, longbench, longbench2, or other tasks of "
            "lm-evaluation-harness."
        ),
    ] = NAMES,
    *,
    plans: Plans = (),
    methods: MethodNames = (),
    to: Target = None,
    tasks_folder: Annotated[
        str | Path | None, Option("A folder with further tasks of the harness, as YAML.", "DIR")
    ] = None,
    limit: Annotated[int | None, Option("Only the first N questions of each task.")] = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    allow_download: Annotated[bool, Option("Fetch MODEL and the questions from the hub.")] = False,
    strict: Strict = False,
    progress: Progress = silent,
    notice: Notice = log_notice,
) -> Benchmarked:
    """Score public benchmarks under each plan, with the plan installed in the harness's model.

    `names` are hellaswag, mmlu, arc-c, truthfulqa, longbench (the in-context tasks of its first
    version), longbench2, or any other task of lm-evaluation-harness or of `tasks_folder`. Plans are
    compared on these names only: a group that has a score is compared as a whole. `limit` takes the
    first questions of each task only. `allow_download` fetches data from the hub; without it they
    must be in the local cache. Needs the extra `eval`.
    """
    with required_by("benchmarks"):
        from ropewalk.evaluation.public_benchmarks import check_names

        target = None if to is None else as_length(to, "to")
        methods, names = as_list(methods, "methods"), as_list(names, "names")
        check_methods(methods, target)
        check_names(names)
        if limit is not None:
            check_count(limit, "limit")
        folder = None if tasks_folder is None else as_path(tasks_folder, "tasks_folder")
        given = [as_plan(plan) for plan in as_list(plans, "plans")]
        runnable(
            model,
            dtype=dtype,
            device=device,
            allow_download=allow_download,
            strict=strict,
            notice=notice,
        )
        from importlib.metadata import version

        import lm_eval  # noqa: F401 - so that a lacking extra is said before a model loads

        from ropewalk.evaluation.public_benchmarks import run_benchmarks
        from ropewalk.models.install import applied
        from ropewalk.models.load import load

        loaded = load(model, dtype=dtype, device=device, allow_download=allow_download)
        conditions = conditions_of(loaded.present_plan, methods, given, target)
        advance = share(progress, "scoring")
        found: list[tuple[Condition, list[BenchmarkScores]]] = []
        for i, condition in enumerate(conditions):
            plan = condition.plan or loaded.present_plan
            # Stock runtimes take the step of a plan that the sequence at hand needs.
            with (
                nullcontext()
                if condition.plan is None
                else applied(loaded.model, condition.plan, by_current_length=True)
            ):
                scores = run_benchmarks(
                    loaded,
                    names,
                    length=plan.target_length,
                    tasks_folder=folder,
                    limit=limit,
                    allow_download=allow_download,
                )
            found.append((condition, scores))
            advance((i + 1) / len(conditions))
        return Benchmarked(
            model=loaded.name,
            harness=version("lm_eval"),
            results=tuple(_result(condition, own) for condition, scores in found for own in scores),
            comparisons=tuple(_comparisons(found)),
        )


def _result(condition: Condition, own: BenchmarkScores) -> BenchmarkResult:
    low, high = _interval(own) or (None, None)
    samples = sum(len(scores) for scores in own.scores.values())
    return BenchmarkResult(
        condition.method, condition.plan_id, own.task, own.metric, own.value, low, high, samples
    )


def _interval(own: BenchmarkScores) -> Interval | None:
    if own.weighting is None:
        return None
    tasks = _tasks(own.scores)
    scores, weights = _pooled(tasks), _weights(tasks, own)
    if not _are_rates(scores):
        return mean_interval(scores, weights)
    # Tasks of a group that differ make a pooled rate's interval too wide, never too narrow.
    return rate_interval(scores) if own.weighting == "questions" else mean_rate_interval(tasks)


_Tasks = list[tuple[list[float], list[tuple[str, int]]]]
"""By task, its scores and the identities of the questions."""


def _tasks(scores: Mapping[str, Mapping[int, float]]) -> _Tasks:
    return [(list(own.values()), [(task, i) for i in own]) for task, own in scores.items()]


def _pooled(tasks: _Tasks) -> list[float]:
    return [score for scores, _ in tasks for score in scores]


def _weights(tasks: _Tasks, own: BenchmarkScores) -> list[float]:
    by_task = own.weighting == "tasks"
    return [1 / len(scores) if by_task else 1.0 for scores, _ in tasks for _ in scores]


def _are_rates(scores: Sequence[float]) -> bool:
    return all(0 <= score <= 1 for score in scores)


def _comparisons(
    found: Sequence[tuple[Condition, Sequence[BenchmarkScores]]],
) -> list[BenchmarkComparison]:
    """Every two plans on the same questions, with Holm's adjustment over all of them."""
    pairs: list[tuple[str, str, str, str, Comparison]] = []
    for (first, ours), (second, theirs) in combinations(found, 2):
        if first.plan_id == second.plan_id:
            continue
        others = {(b.task, b.metric): b for b in theirs}
        for a in ours:
            b = others.get((a.task, a.metric))
            compared = _compared(a, b) if a.compared and b is not None else None
            if compared is not None:
                pairs.append((a.task, a.metric, first.method, second.method, compared))
    adjusted = holm([comparison.p_value for *_, comparison in pairs])
    return [BenchmarkComparison(*own, p) for own, p in zip(pairs, adjusted, strict=True)]


def _compared(a: BenchmarkScores, b: BenchmarkScores) -> Comparison | None:
    """None if the difference of the values is not that of mean scores of the same questions."""
    same = {task: own.keys() for task, own in a.scores.items()} == {
        task: own.keys() for task, own in b.scores.items()
    }
    if not same or a.weighting is None or a.weighting != b.weighting:
        return None
    first = _tasks(a.scores)
    second = _tasks({t: {i: b.scores[t][i] for i in own} for t, own in a.scores.items()})
    own, other = _pooled(first), _pooled(second)
    if not _are_rates(own + other):
        return compare_means(own, other, _weights(first, a))
    if a.weighting == "questions":
        return compare_rates(own, other)
    return compare_mean_rates(first, second)
