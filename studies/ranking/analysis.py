"""From finished cells to a rule, and how well the rule orders methods on models it never saw.

A pair of methods counts where measurement separates them: the 95% interval of the difference in
retrieval, paired document by document, leaves out 0. A rule is a sum of a few quantities of the
theory with weights of one sign; it is right about a pair if it gives the better one the lower sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ropewalk.evaluation.statistics import mean_interval, t_interval
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from studies.ranking.cells import ALSO, SUBJECTS, TUNED, UNTOUCHED
from studies.ranking.quantities import QUANTITIES, Case

RETRIEVED = 2  # in a row of a cell: loss of the text, loss of the answers, share retrieved
MOST = 3  # quantities of a rule
SHRINKAGE = 0.05  # keeps the weights of a rule finite where it separates all pairs
SPLITS = 200  # into halves of documents
FLOOR = 0.05
"""A method that retrieves less works no more, and any rule tells it from one that does."""


@dataclass(frozen=True)
class Group:
    """All methods of one model at one length after so many steps, on the same documents."""

    subject: str
    factor: int
    steps: int
    texts: tuple[str, ...]
    retrieved: dict[str, NDArray[np.float64]]
    """By method, the share of right answers of each document."""
    cases: dict[str, Case]

    @property
    def left_out(self) -> bool:
        return SUBJECTS[self.subject].left_out

    @cached_property
    def quantities(self) -> dict[str, dict[str, float]]:
        return {
            method: {name: quantity(case) for name, quantity in QUANTITIES.items()}
            for method, case in self.cases.items()
        }

    @cached_property
    def separated(self) -> list[tuple[str, str]]:
        """The pairs that measurement separates, the better method first."""
        found = []
        for one, other in combinations(self.retrieved, 2):
            difference = self.retrieved[one] - self.retrieved[other]
            interval = mean_interval(difference, clusters=self.texts)
            if interval is None or interval[0] <= 0 <= interval[1]:
                continue
            found.append((one, other) if interval[0] > 0 else (other, one))
        return found

    def mean(self, method: str) -> float:
        return float(self.retrieved[method].mean())


def groups(lines: Iterable[dict[str, Any]]) -> list[Group]:
    """The groups of finished cells."""
    by_key: dict[tuple[str, int, int], dict[str, dict[str, Any]]] = {}
    for line in lines:
        for steps in line["measured"]:
            key = (line["subject"], line["factor"], int(steps))
            by_key.setdefault(key, {})[line["method"]] = line
    found = []
    for (subject, factor, steps), own in sorted(by_key.items()):
        any_line = next(iter(own.values()))
        assert all(line["texts"] == any_line["texts"] for line in own.values()), (
            "one set of documents"
        )
        found.append(
            Group(
                subject=subject,
                factor=factor,
                steps=steps,
                texts=tuple(any_line["texts"]),
                retrieved={
                    method: np.array(line["measured"][str(steps)])[:, RETRIEVED]
                    for method, line in own.items()
                },
                cases={method: _case(line) for method, line in own.items()},
            )
        )
    return found


def _case(line: dict[str, Any]) -> Case:
    start = RotarySchedule.plain(RotaryGeometry.from_json(line["geometry"]))
    factors = np.maximum(line["factors"], 1.0)
    schedule = start.rescaled(factors, line["target"], attention_scaling=line["attention_scaling"])
    return Case(start, schedule, line["target"])


class Rule(NamedTuple):
    """Lower is better."""

    weights: dict[str, float]

    def __call__(self, quantities: dict[str, float]) -> float:
        return sum(weight * quantities[name] for name, weight in self.weights.items())


Order = Callable[[Group, str], float]
"""Orders the methods of a group, the best one lowest."""


def by_rule(rule: Rule) -> Order:
    return lambda group, method: rule(group.quantities[method])


def ordered(group: Group, order: Order, least: float = -np.inf) -> list[float]:
    """For each separated pair of which both methods retrieve so much, 1 if it is ordered rightly.

    A tie is a half.
    """
    found = []
    for better, worse in group.separated:
        if group.mean(worse) >= least:
            first, second = order(group, better), order(group, worse)
            found.append(0.5 if first == second else float(first < second))
    return found


def rightly_ordered(
    found: Sequence[Group], order: Order, least: float = -np.inf
) -> tuple[float, int]:
    """The number of these pairs that are ordered rightly, and the number of all."""
    each = [right for group in found for right in ordered(group, order, least)]
    return sum(each), len(each)


def fitted(found: Sequence[Group], names: Sequence[str]) -> Rule | None:
    """Weights by logistic regression on the separated pairs; None if one would be negative."""
    rows = np.array(
        [
            [group.quantities[worse][name] - group.quantities[better][name] for name in names]
            for group in found
            for better, worse in group.separated
        ]
    )
    if not len(rows):
        return None
    spread = rows.std(axis=0) + 1e-12
    weights = _logistic(rows / spread) / spread
    if (weights <= 0).any():
        return None
    return Rule(dict(zip(names, (weights / weights.max()).tolist(), strict=True)))


def _logistic(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Newton's method: every row is a difference that should come out positive."""
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(np.clip(rows @ weights, -30, 30)))  # of being ordered wrongly
        gradient = rows.T @ chance / len(rows) - SHRINKAGE * weights
        curve = (rows * (chance * (1 - chance))[:, None]).T @ rows / len(rows)
        weights = weights + np.linalg.solve(curve + SHRINKAGE * np.eye(len(weights)), gradient)
    return weights


class Chosen(NamedTuple):
    rule: Rule
    within: float
    """The share of pairs ordered rightly on models that were left out of the fit in turn."""
    tried: list[tuple[float, tuple[str, ...]]]


def chosen(found: Sequence[Group]) -> Chosen:
    """The rule that orders best when each model of the fit is left out in turn, fewest first."""
    subjects = sorted({group.subject for group in found})
    tried: list[tuple[float, tuple[str, ...]]] = []
    for count in range(1, MOST + 1):
        for names in combinations(QUANTITIES, count):
            right, total = 0.0, 0
            for left_out in subjects:
                rule = fitted([g for g in found if g.subject != left_out], names)
                if rule is None:
                    break
                own = rightly_ordered([g for g in found if g.subject == left_out], by_rule(rule))
                right, total = right + own[0], total + own[1]
            else:
                if fitted(found, names) is not None:
                    tried.append((right / total, names))
    best = max(share for share, _ in tried)
    # Of equals, the one whose quantities are listed first.
    near = [(len(names), -share, names) for share, names in tried if share > best - 0.01]
    names = min(near, key=lambda each: each[:2])[2]
    rule = fitted(found, names)
    assert rule is not None
    return Chosen(rule, {each: share for share, each in tried}[names], sorted(tried, reverse=True))


def by_names(fit: Sequence[Group]) -> Order:
    """A fixed list: methods by what they retrieved on average in the fit, whatever the model."""
    mean = {
        method: float(np.mean([group.mean(method) for group in fit if method in group.retrieved]))
        for method in names_of(fit)
    }
    return lambda _, method: -mean.get(method, 0.0)


def names_of(found: Sequence[Group]) -> dict[str, None]:
    return dict.fromkeys(method for group in found for method in group.retrieved)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's, with mean ranks for ties; NaN if one side is constant."""
    first, second = _ranks(one), _ranks(other)
    if min(first.std(), second.std()) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    below = (array[:, None] > array).sum(axis=1)
    equal = (array[:, None] == array).sum(axis=1)
    ranks: NDArray[np.float64] = below + (equal - 1) / 2
    return ranks


def ceiling(group: Group) -> float:
    """The most that a rule can be expected to correlate with the order of the methods.

    That is the root of the reliability: the rank correlation between halves of the documents,
    stepped up to all of them by the formula of Spearman and Brown. It speaks of documents alone,
    not of another training seed.
    """
    rng = np.random.default_rng(0)
    values = np.stack(list(group.retrieved.values()))
    found = []
    for _ in range(SPLITS):
        order = rng.permutation(values.shape[1])
        halves = np.array_split(order, 2)
        one, other = (values[:, half].mean(axis=1).tolist() for half in halves)
        found.append(rank_correlation(one, other))
    half = float(np.nanmean(found)) if not np.isnan(found).all() else float("nan")
    return float(np.sqrt(max(0.0, 2 * half / (1 + half))))


def behind(group: Group, order: Order) -> tuple[float, tuple[float, float] | None]:
    """The retrieval that the first method lacks compared with the best, with its interval.

    The best method is chosen on one half of the documents and measured on the other, over many
    halvings: chosen and measured on the same ones, luck alone would put it ahead. Where halves
    choose wrongly, this is too little. No interval where the first is the best in every half.
    """
    first = min(group.retrieved, key=lambda method: order(group, method))
    rng = np.random.default_rng(0)
    values = np.stack(list(group.retrieved.values()))
    own = group.retrieved[first]
    total, seen = np.zeros(len(own)), np.zeros(len(own))
    for _ in range(SPLITS):
        inside = rng.permutation(len(own)) < len(own) // 2
        best = values[values[:, ~inside].mean(axis=1).argmax()]
        total[inside] += (best - own)[inside]
        seen += inside
    difference = total / np.maximum(seen, 1)
    interval = mean_interval(difference, clusters=group.texts) if difference.any() else None
    return float(difference.mean()), interval


def summary(found: Sequence[Group]) -> dict[str, Any]:
    """The rules, their check, and the scores of every method."""
    return {
        "rules": {
            name: _rule(
                [group for group in found if not group.left_out and group.steps in steps],
                [group for group in found if group.left_out and group.steps in steps],
            )
            for name, steps in (("without training", UNTOUCHED), ("after training", TUNED))
        },
        "retrieved": [
            {
                "subject": group.subject,
                "factor": group.factor,
                "steps": group.steps,
                "separated_pairs": len(group.separated),
                "methods": {method: round(group.mean(method), 4) for method in group.retrieved},
            }
            for group in found
        ],
        "llama3_less_yarn": [
            {"subject": group.subject, **_difference(group, "llama3", "yarn")}
            for group in found
            if (group.factor, group.steps) == (4, 0)
        ],
    }


def _difference(group: Group, first: str, second: str) -> dict[str, Any]:
    """The difference in retrieval on the same documents, with its interval over texts."""
    difference = group.retrieved[first] - group.retrieved[second]
    interval = mean_interval(difference, clusters=group.texts)
    return {"difference": round(float(difference.mean()), 5), "interval": _ends(interval, 5)}


def trained_less_yarn(
    found: Sequence[Group], factor: int = 4, steps: int = 200
) -> dict[str, Any] | None:
    """Retrieval under base_change after training, minus that under YaRN without any.

    Models are the unit: the interval is Student's t over them.
    """
    by_key = {(group.subject, group.factor, group.steps): group for group in found}
    by_subject = {
        subject: group.mean("base_change") - by_key[subject, factor, 0].mean("yarn")
        for (subject, own, count), group in by_key.items()
        if (own, count) == (factor, steps) and "base_change" in group.retrieved
    }
    if not by_subject:
        return None
    values = list(by_subject.values())
    return {
        "factor": factor,
        "steps": steps,
        "by_subject": {name: round(value, 4) for name, value in by_subject.items()},
        "mean": round(float(np.mean(values)), 4),
        "interval": _ends(t_interval(values)),
    }


def _rule(fit: Sequence[Group], check: Sequence[Group]) -> dict[str, Any] | None:
    if not sum(len(group.separated) for group in fit):
        return None
    best = chosen(fit)
    order = by_rule(best.rule)
    names = by_names(fit)
    rows = []
    for group in check:
        right, pairs = rightly_ordered([group], names)
        both_right, both = rightly_ordered([group], names, FLOOR)
        gap, interval = behind(group, names)
        scores = [names(group, method) for method in group.retrieved]
        rates = [-group.mean(method) for method in group.retrieved]
        rows.append(
            {
                "subject": group.subject,
                "factor": group.factor,
                "steps": group.steps,
                "right": right,
                "pairs": pairs,
                "right_by_rule": rightly_ordered([group], order)[0],
                "right_above_floor": both_right,
                "pairs_above_floor": both,
                "right_by_rule_above_floor": rightly_ordered([group], order, FLOOR)[0],
                "correlation": _rounded(rank_correlation(scores, rates)),
                "ceiling": _rounded(ceiling(group)),
                "first": min(group.retrieved, key=lambda method: names(group, method)),
                "behind": round(gap, 4),
                "interval": _ends(interval),
            }
        )
    above = [(i, right) for i, group in enumerate(check) for right in ordered(group, names, FLOOR)]
    share = mean_interval([right for _, right in above], clusters=[i for i, _ in above])
    return {
        "interval_above_floor": _ends(share),
        "weights": {name: round(weight, 2) for name, weight in best.rule.weights.items()},
        "pairs_of_the_fit": sum(len(group.separated) for group in fit),
        "models_of_the_fit": sorted({group.subject for group in fit}),
        "each_left_out_in_turn": round(best.within, 4),
        "rules_tried": len(best.tried),
        "list_of_names": sorted(names_of(fit), key=lambda method: names(fit[0], method)),
        "alone": {name: round(_alone(fit, name), 4) for name in QUANTITIES},
        "best_tried": [[round(share, 4), list(names)] for share, names in best.tried[:5]],
        "check": rows,
    }


def _alone(fit: Sequence[Group], name: str) -> float:
    right, pairs = rightly_ordered(fit, lambda group, method: group.quantities[method][name])
    return right / pairs


def _ends(interval: tuple[float, float] | None, digits: int = 4) -> list[float] | None:
    return interval and [round(end, digits) for end in interval]


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 3)


def measured_rows(found: Sequence[Group]) -> list[dict[str, Any]]:
    """By method, factor and steps, over models: the content of ropewalk/planning/measured.json."""
    rows = []
    methods = names_of(found)
    for steps, factor in sorted({(group.steps, group.factor) for group in found}):
        for method in methods:
            own = [
                group
                for group in found
                if (group.steps, group.factor) == (steps, factor) and method in group.retrieved
            ]
            if not own:
                continue
            rates = [group.mean(method) for group in own]
            best = [max(map(group.mean, group.retrieved)) for group in own]
            row = {
                "factor": factor,
                "steps": steps,
                "models": len(own),
                "retrieved": [round(min(rates), 3), round(max(rates), 3)],
                "best": [round(min(best), 3), round(max(best), 3)],
                "refuted": sum(_refutes(group, method) for group in own),
            }
            rows += [{"method": name, **row} for name in (method, ALSO.get(method)) if name]
    return rows


def _refutes(group: Group, method: str) -> bool:
    """True if it surely retrieves less than half of what the best one does."""
    best = max(group.retrieved, key=group.mean)
    return 2 * group.mean(method) < group.mean(best) and (best, method) in group.separated
