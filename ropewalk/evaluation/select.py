"""The one rule for the best schedule, for `search` and `extend`.

All schedules are measured on the same documents, which no search has seen, and compared document by
document. No schedule wins that is clearly worse in the text or in the answers: perplexity can fall
while retrieval is lost, and the reverse. Of the others, the best hand-designed method is the one
with the lowest objective. The searched schedule with the lowest objective takes its place only if
these documents show that it is better: the 95% interval of the difference lies below 0. With
several searched schedules the interval is wider by Bonferroni's rule, so that the luckiest of many
is not taken for the best; and it allows for skewed differences (statistics.skewed_mean_interval),
without which false alarms are several times as frequent. Texts that the documents were taken from
are a random effect; of fewer than five texts, intervals speak of those texts alone.

Of the schedules that may be best at the target, those come first that cost little on short text: at
most `SHORT_LIMIT` nats a token, as a mean over documents of the original length. If all cost more,
the cheapest of them is taken.

`remaining` saves forwards: what is clearly worse after some documents needs no more of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ropewalk.errors import InvalidValue
from ropewalk.evaluation.statistics import detectable, enough, skewed_mean_interval
from ropewalk.interval import CONFIDENCE, Interval

SHORT_LIMIT = 0.02
"""Nats a token of text that an extension may cost within the original length: 2% of perplexity."""


class Losses(NamedTuple):
    """One schedule on some documents, in nats per token; infinite if the model failed."""

    objective: NDArray[np.float64]
    """The value that the search minimises."""
    text: NDArray[np.float64]
    answers: NDArray[np.float64]
    texts: tuple[str, ...] = ()
    """The text that each document was taken from: documents of one text are not independent."""

    @property
    def both(self) -> NDArray[np.float64]:
        return self.text + self.answers

    @property
    def failed(self) -> bool:
        return not np.isfinite(self.both).all()


class Paired(NamedTuple):
    """The mean difference of two schedules on the same documents, with its 95% interval."""

    documents: int
    """Stretches of text."""
    texts: int
    """The texts that these are from: for five or more, the interval allows for how they differ."""
    difference: Interval
    detectable: float | None = None
    """The smallest difference that such documents would show in four cases of five."""

    @property
    def change(self) -> Interval:
        """The difference of losses as a change of perplexity."""
        return self.difference.mapped(math.expm1, "change")

    @property
    def verdict(self) -> str:
        """The verdict on a loss: lower is better."""
        if self.difference.is_below(0):
            return "better"
        return "worse" if self.difference.is_above(0) else "undecided"

    def __str__(self) -> str:
        read = f"{self.documents} document{'s' * (self.documents > 1)}"
        texts = "" if self.texts == self.documents else f" of {self.texts} texts"
        if self.difference.ends is None:
            return f"{self.difference.number()} (of {read}{texts}: too few for an interval)"
        return f"{str(self.difference).removesuffix(')')}, of {read}{texts})"


class Choice(NamedTuple):
    chosen: str
    best_hand_designed: str
    best_searched: str | None
    """The one with the lowest objective of those that are clearly worse in no part."""
    comparison: Paired | None
    """The best searched schedule's objective minus that of the best hand-designed method."""
    text: Paired | None = None
    """The same of the loss of the text alone."""
    answers: Paired | None = None
    """The same of the loss of the answers alone."""


def choose(
    losses: Mapping[str, Losses],
    hand_designed: Collection[str],
    entered: int | None = None,
    costs: Mapping[str, Paired] = MappingProxyType({}),
    limit: float = SHORT_LIMIT,
) -> Choice:
    """The best schedule by losses on the same documents.

    `entered` is how many searched schedules there were before some dropped out. `costs` are those
    on short text; of schedules that cost more than the `limit`, none is taken if another is there.
    """
    if costs:
        least = min(costs, key=lambda name: costs[name].difference.value)
        affordable = within(costs, limit) or [least]
        left = {name: loss for name, loss in losses.items() if name in affordable}
        if any(name in hand_designed for name in left):
            losses = left
        else:  # searched schedules alone, the best of which is compared with what costs too much
            designed = {name: loss for name, loss in losses.items() if name in hand_designed}
            return choose({**designed, **left}, hand_designed, entered)._replace(
                chosen=min(left, key=lambda name: left[name].objective.mean())
            )
    baseline = best_hand_designed(losses, hand_designed)
    leader = _leader(losses, hand_designed, baseline)
    if leader is None:
        return Choice(baseline, baseline, None, None)
    if losses[baseline].failed:
        return Choice(leader, baseline, leader, None)
    searched = [name for name in losses if name not in hand_designed]
    confidence = 1 - (1 - CONFIDENCE) / max(1, entered or len(searched))
    comparison = _compared(losses[leader], losses[baseline], "objective", confidence)
    parts = [_compared(losses[leader], losses[baseline], part) for part in ("text", "answers")]
    chosen = leader if comparison.verdict == "better" else baseline
    return Choice(chosen, baseline, leader, comparison, *parts)


def within(costs: Mapping[str, Paired], limit: float) -> list[str]:
    """The schedules whose mean cost on short text is at most the limit."""
    return [name for name, cost in costs.items() if cost.difference.value <= limit]


def remaining(
    losses: Mapping[str, Losses], hand_designed: Collection[str], tests: int | None = None
) -> list[str]:
    """The names that more documents may yet show to be best, a hand-designed method among them.

    The others failed, are clearly worse in one part, or than the best of their kind in the
    objective, by intervals that are wider for being several: by Bonferroni's rule for all `tests`
    of a race, its schedules times its looks, so that its error holds whenever one is dropped.
    """
    baseline = best_hand_designed(losses, hand_designed)
    leader = _leader(losses, hand_designed, baseline)
    confidence = 1 - (1 - CONFIDENCE) / (tests or len(losses))

    def holds_up(name: str) -> bool:
        if name in (baseline, leader):
            return True
        if losses[name].failed:
            return False
        if name in hand_designed:
            return _compared(losses[name], losses[baseline], "both", confidence).verdict != "worse"
        best = losses[leader or baseline]
        return (
            _keeps_both(losses[name], losses[baseline])
            and _compared(losses[name], best, "objective", confidence).verdict != "worse"
        )

    return [name for name in losses if holds_up(name)]


def best_hand_designed(losses: Mapping[str, Losses], hand_designed: Collection[str]) -> str:
    """The hand-designed method with the lowest objective; of equal ones, the first.

    Not one that is clearly worse in a part than the method with the lowest sum of both.
    """
    designed = [name for name in losses if name in hand_designed]
    surest = min(designed, key=lambda name: losses[name].both.mean())
    able = [n for n in designed if not losses[n].failed and _keeps_both(losses[n], losses[surest])]
    return min(able or [surest], key=lambda name: losses[name].objective.mean())


def _leader(
    losses: Mapping[str, Losses], hand_designed: Collection[str], baseline: str
) -> str | None:
    """The searched schedule with the lowest objective among those that keep both parts."""
    able = [
        name
        for name, loss in losses.items()
        if name not in hand_designed and not loss.failed and _keeps_both(loss, losses[baseline])
    ]
    return min(able, key=lambda name: losses[name].objective.mean(), default=None)


def _keeps_both(losses: Losses, baseline: Losses) -> bool:
    """True if neither the text nor the answers have a clearly higher loss."""
    return baseline.failed or not any(
        _compared(losses, baseline, part).verdict == "worse" for part in ("text", "answers")
    )


def _compared(losses: Losses, other: Losses, part: str, confidence: float = CONFIDENCE) -> Paired:
    return paired(getattr(losses, part), getattr(other, part), losses.texts, confidence)


def paired(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    texts: Sequence[str] = (),
    confidence: float = CONFIDENCE,
) -> Paired:
    """The mean of the first minus that of the second, on the same documents."""
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InvalidValue(
            "losses", None, "must be finite to be compared", "omit methods that failed"
        )
    differences = first - second
    count = len(set(texts)) if texts else len(differences)
    clusters = enough(texts)
    ends = skewed_mean_interval(differences, clusters, confidence)
    mean = float(differences.mean())
    shown = Interval.of(mean, ends, "difference in nats", "documents", confidence)
    return Paired(len(differences), count, shown, detectable(differences, clusters, confidence))
