"""From scored samples to results: one value with its interval a cell, methods compared in pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import NamedTuple, TypeVar

import numpy as np

from ropewalk.evaluation.statistics import (
    PairedComparison,
    Rates,
    compare_mean_rates,
    compare_means,
    compare_rates,
    holm,
    is_significant,
    mean_interval,
    mean_rate,
    mean_rate_interval,
    rate_interval,
    shares_interval,
)
from ropewalk.interval import Interval
from ropewalk.records import (
    AS_IT_IS,
    MEAN_SCORE,
    NLL,
    PERPLEXITY,
    EvalRecord,
    EvalResult,
    Mode,
    Subject,
    is_main,
    is_main_answer,
    metric_of,
    named_task,
)
from ropewalk.values import Drawn, Value

# Perplexity is shown as the exponential of the mean loss, its unit of account.
SHOWN_AS = {NLL.name: PERPLEXITY.name}

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def summarise(records: Iterable[EvalRecord]) -> list[EvalResult]:
    """One result per subject, task, mode, length and metric, in the order of first samples."""
    groups = grouped(
        (record for record in records if record.positions is None),
        lambda r: (r.subject, r.task, r.mode, r.length, r.metric),
    )
    return [
        EvalResult.of(subject, *cell, SHOWN_AS.get(metric, metric), estimate(group), len(group))
        for (subject, *cell, metric), group in groups.items()
    ]


def estimate(group: Sequence[EvalRecord]) -> Interval:
    """The value of records of one metric, with its interval."""
    layouts, scores = [r.layout for r in group], [r.score for r in group]
    if metric_of(group[0]).is_answer:
        ends = rate_interval(scores, layouts)
        return Interval.of(sum(scores) / len(scores), ends, "share")
    weights = [r.weight for r in group]
    mean = float(np.average(scores, weights=weights))
    interval = Interval.of(mean, mean_interval(scores, weights, layouts), "share")
    return interval.mapped(math.exp, "perplexity") if group[0].metric == NLL.name else interval


def in_words(result: EvalResult) -> str:
    """A result with its interval: `kv 80% (58 to 92%)`."""
    return f"{named_task(result.task, result.metric)} {result.estimate}"


def means(records: Iterable[EvalRecord], groups: Mapping[str, Sequence[str]]) -> list[EvalResult]:
    """The mean over the tasks of a group, by subject, mode and length; all of them must be there.

    Tasks count alike. Answers that read the same text are one cluster, also where they are of
    different tasks.
    """
    by_cell = grouped(records, lambda r: (r.subject, r.mode, r.length))
    results = []
    for name, members in groups.items():
        for (subject, mode, length), cell in by_cell.items():
            tasks = rates_of(cell, members)
            if tasks is None:
                continue
            mean = Interval.of(mean_rate(tasks), mean_rate_interval(tasks), "share")
            samples = sum(len(scores) for scores, _ in tasks)
            results.append(
                EvalResult.of(subject, name, mode, length, MEAN_SCORE.name, mean, samples)
            )
    return results


def rates_of(records: Iterable[EvalRecord], members: Sequence[str]) -> Rates | None:
    """By task of a group, the scores of its answers and layouts; None if a task lacks them."""
    by_task = grouped(
        (r for r in records if r.task in members and is_main_answer(r)), lambda r: r.task
    )
    if len(by_task) < len(members):
        return None
    return [
        ([r.score for r in by_task[task]], [r.layout for r in by_task[task]]) for task in members
    ]


@dataclass(frozen=True, eq=False)
class MethodComparison(Value):
    """Two subjects on one task at one length."""

    task: str
    mode: Mode
    metric: str
    length: int
    first: Subject
    second: Subject
    comparison: PairedComparison
    """The mean score of the first minus that of the second."""
    adjusted_p: float | None
    """Holm's, over all comparisons made together; None if there are too few samples for one."""


@dataclass(frozen=True, eq=False)
class SameChoices(Value):
    """The share of answers' tokens for which two subjects of one plan choose the same token first.

    They differ in rounding alone: in the type of their cache.
    """

    task: str
    length: int
    first: Subject
    second: Subject
    share: Interval
    documents: int


def same_choices(records: Iterable[EvalRecord]) -> list[SameChoices]:
    """Every pair of subjects of one plan, by length, on the documents that both have read."""
    cells = grouped(
        (r for r in records if r.choices is not None),
        lambda r: (r.task, r.length, r.plan_id, r.weights),
    )
    pairs = []
    for (task, length, *_), cell in cells.items():
        for (first, a), (second, b) in combinations(grouped(cell, lambda r: r.subject).items(), 2):
            other = {r.sample: r.choices or () for r in b}
            both = [r for r in a if r.sample in other]
            shares = [fmean(map(int.__eq__, r.choices or (), other[r.sample])) for r in both]
            if shares:
                tokens = fmean(len(r.choices or ()) for r in both)
                ends = shares_interval(shares, tokens, [r.layout for r in both])
                mean = float(np.average(shares, weights=[r.weight for r in both]))
                share = Interval.of(mean, ends, "share")
                pairs.append(SameChoices(task, length, first, second, share, len(shares)))
    return pairs


def compare_methods(
    records: Iterable[EvalRecord], groups: Mapping[str, Sequence[str]] | None = None
) -> list[MethodComparison]:
    """Every pair of subjects on the samples that both were scored on, and their means over groups.

    The difference of losses stands for perplexity: exp of it is the ratio of the perplexities.
    """
    by_subject = grouped(records, lambda r: r.subject)
    pairs = [
        (first, a, second, b) for (first, a), (second, b) in combinations(by_subject.items(), 2)
    ]
    return compare_pairs(pairs, groups)


Pair = tuple[Subject, Sequence[EvalRecord], Subject, Sequence[EvalRecord]]
"""Two subjects, each with its records."""


def compare_pairs(
    pairs: Iterable[Pair], groups: Mapping[str, Sequence[str]] | None = None
) -> list[MethodComparison]:
    """Each pair, task by task and length by length, then by the means over groups.

    p-values are Holm's, over all of them.
    """
    compared: list[tuple[str, Mode, str, int, Subject, Subject, PairedComparison]] = []
    for first, a, second, b in pairs:
        scores = {(r.mode, r.metric, r.sample): r for r in b if r.positions is None}
        both = (
            (mine, scores.get((mine.mode, mine.metric, mine.sample)))
            for mine in a
            if mine.positions is None
        )
        shared = grouped(
            ((mine, other) for mine, other in both if other is not None),
            lambda pair: (pair[0].task, pair[0].mode, pair[0].metric, pair[0].length),
        )
        for (task, mode, metric, length), scored in shared.items():
            compared.append((task, mode, metric, length, first, second, _compare(scored)))
        for mode, length in dict.fromkeys((mode, length) for _, mode, _, length in shared):
            cell = [p for key, rows in shared.items() if key[1::2] == (mode, length) for p in rows]
            for name, members in (groups or {}).items():
                one, two = (rates_of([p[i] for p in cell], members) for i in (0, 1))
                if one is not None and two is not None:
                    rates = compare_mean_rates(one, two)
                    compared.append((name, mode, MEAN_SCORE.name, length, first, second, rates))
    adjusted = holm([comparison.p_value for *_, comparison in compared])
    return [MethodComparison(*row, p) for row, p in zip(compared, adjusted, strict=True)]


def _compare(pairs: Sequence[tuple[EvalRecord, EvalRecord]]) -> PairedComparison:
    first, second = [a.score for a, _ in pairs], [b.score for _, b in pairs]
    layouts = [a.layout for a, _ in pairs]
    if metric_of(pairs[0][0]).is_answer:
        return compare_rates(first, second, layouts)
    return compare_means(first, second, [a.weight for a, _ in pairs], layouts)


class ComparedTogether(Drawn):
    """A result with comparisons that were tested together."""

    comparisons: tuple[MethodComparison, ...]

    @property
    def significant(self) -> tuple[MethodComparison, ...]:
        """The comparisons whose adjusted p-value is below 0.05."""
        return tuple(c for c in self.comparisons if is_significant(c.adjusted_p))

    @property
    def untested(self) -> int:
        """The number of comparisons with too few samples for a test."""
        return sum(c.adjusted_p is None for c in self.comparisons)

    @property
    def undecided(self) -> int:
        """The number of comparisons that were tested and show no difference."""
        return len(self.comparisons) - self.untested - len(self.significant)


class Spread(NamedTuple):
    """One score over several models, such as the last checkpoints of a training."""

    method: str
    task: str
    mode: Mode
    length: int
    metric: str
    values: tuple[float, ...]
    mean: float
    lowest: float
    highest: float


def spreads(models: Iterable[Iterable[EvalResult]]) -> list[Spread]:
    """The mean and range of each score that is shown and that all models have."""
    values_of: dict[tuple[str, str, Mode, int, str], list[float]] = {}
    count = 0
    for results in models:
        count += 1
        for r in filter(is_main, results):
            values_of.setdefault((r.method, r.task, r.mode, r.length, r.metric), []).append(r.value)
    return [
        Spread(*key, tuple(values), fmean(values), min(values), max(values))
        for key, values in values_of.items()
        if len(values) == count
    ]


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items by a key, in the order in which the keys first came."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def shown_method(method: str) -> str:
    """The method as people read it."""
    return "unmodified" if method == AS_IT_IS else method


def labels(subjects: Iterable[Subject]) -> dict[Subject, str]:
    """A label per subject, in the order given: its method, and more only if methods coincide."""
    unique = list(dict.fromkeys(subjects))
    labels_of = {}
    for subject in unique:
        namesakes = [other for other in unique if other.method == subject.method]
        parts = [
            each[:6]
            for each, all_of_them in (
                (subject.plan_id, {other.plan_id for other in namesakes}),
                (subject.weights, {other.weights for other in namesakes}),
            )
            if len(all_of_them) > 1
        ]
        name = shown_method(subject.method)
        labels_of[subject] = f"{name} ({', '.join(parts)})" if parts else name
    return labels_of


def follow(stored: Sequence[EvalResult], records: Iterable[EvalRecord]) -> bool:
    """True if results are of these records, and equal up to rounding, which machines differ in.

    Intervals may be those of another version of ropewalk.
    """
    one, two = (
        {(r.subject, r.task, r.mode, r.length, r.metric, r.samples): r.value for r in results}
        for results in (summarise(records), stored)
    )
    return one.keys() == two.keys() and all(
        math.isclose(value, two[key], rel_tol=1e-9, abs_tol=1e-12) for key, value in one.items()
    )
