"""`benchmarks`: public benchmarks of a model under several plans, through lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.api.common import Length, PlanLike, as_length, as_list, as_path, as_plan, runnable
from ropewalk.evaluation.conditions import check_methods, conditions_of
from ropewalk.evaluation.statistics import (
    Comparison,
    compare_means,
    compare_rates,
    holm,
    mean_interval,
    rate_interval,
)
from ropewalk.extras import required_by
from ropewalk.models.source import Model
from ropewalk.progress import Notice, Progress, log_notice, share, silent
from ropewalk.untrusted import check_count
from ropewalk.values import Result, Value, check_filled

if TYPE_CHECKING:
    from ropewalk.evaluation.public_benchmarks import BenchmarkScores

NAMES = ("hellaswag", "mmlu", "arc-c", "truthfulqa")


@dataclass(frozen=True, eq=False)
class BenchmarkResult(Value):
    """One metric of one task, under one plan."""

    method: str
    plan_id: str
    task: str
    metric: str
    value: float
    """As the harness reports it."""
    low: float | None
    """The 95% interval over questions; None for fewer than five."""
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
    """The mean of the first less that of the second."""
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


@required_by("benchmarks")
def benchmarks(
    model: Model,
    names: Sequence[str] = NAMES,
    *,
    plans: Sequence[PlanLike] = (),
    methods: Sequence[str] = (),
    to: Length | None = None,
    tasks_folder: str | Path | None = None,
    limit: int | None = None,
    dtype: str = "auto",
    device: str = "auto",
    allow_download: bool = False,
    strict: bool = False,
    progress: Progress = silent,
    notice: Notice = log_notice,
) -> Benchmarked:
    """Score public benchmarks under each plan, with the plan installed in the harness's model.

    `names` are hellaswag, mmlu, arc-c, truthfulqa, longbench (the in-context tasks of its first
    version), longbench2, or any other task of lm-evaluation-harness or of `tasks_folder`. `limit`
    takes the first questions only. `allow_download` fetches data from the hub; without it they must
    be in the local cache. Needs the extra `eval`.
    """
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
    from contextlib import nullcontext
    from importlib.metadata import version

    import lm_eval  # noqa: F401 - so that a lacking extra is said before a model loads

    from ropewalk.evaluation.public_benchmarks import run_benchmarks
    from ropewalk.models.install import applied
    from ropewalk.models.load import load

    loaded = load(model, dtype=dtype, device=device, allow_download=allow_download)
    conditions = conditions_of(loaded.present_plan, methods, given, target)
    advance = share(progress, "scoring")
    found: list[tuple[str, str, BenchmarkScores]] = []
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
        found += [(condition.method, condition.plan_id, own) for own in scores]
        advance((i + 1) / len(conditions))
    return Benchmarked(
        model=loaded.name,
        harness=version("lm_eval"),
        results=tuple(_result(*own) for own in found),
        comparisons=tuple(_comparisons(found)),
    )


def _result(method: str, plan_id: str, own: BenchmarkScores) -> BenchmarkResult:
    scores = list(own.scores.values())
    interval = rate_interval(scores) if _are_rates(scores) else mean_interval(scores)
    low, high = interval or (None, None)
    return BenchmarkResult(method, plan_id, own.task, own.metric, own.value, low, high, len(scores))


def _are_rates(scores: Sequence[float]) -> bool:
    return all(0 <= score <= 1 for score in scores)


def _comparisons(
    found: Sequence[tuple[str, str, BenchmarkScores]],
) -> list[BenchmarkComparison]:
    pairs: list[tuple[str, str, str, str, Comparison]] = []
    for (first, _, a), (second, _, b) in combinations(found, 2):
        if (a.task, a.metric) != (b.task, b.metric):
            continue
        shared = [i for i in a.scores if i in b.scores]
        own, other = [a.scores[i] for i in shared], [b.scores[i] for i in shared]
        compared = (
            compare_rates(own, other)
            if _are_rates(own + other)
            else compare_means(own, other, [1.0] * len(own))
        )
        pairs.append((a.task, a.metric, first, second, compared))
    known = [(i, c.p_value) for i, (*_, c) in enumerate(pairs) if c.p_value is not None]
    adjusted = dict(zip((i for i, _ in known), holm([p for _, p in known]), strict=True))
    return [BenchmarkComparison(*own, adjusted.get(i)) for i, own in enumerate(pairs)]
