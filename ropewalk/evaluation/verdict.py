"""The verdict on a model at a length, against the unmodified model at the length it was trained at.

Documents hold facts, and a model is read until they decide (planted.py). It *works* if it retrieves
at most ten points less than the unmodified model does within its own window: an absolute threshold
would condemn every model that finds few facts anywhere.

Answers are looked at after 6, 12, 32, 48 and 64 documents, and the first interval of the difference
that leaves out −10 points decides. Five looks at 99% contain the truth together in 95% of runs by
Bonferroni's rule, however the looks depend on each other, and whenever the looking stops. A wrong
*works* is an error to one side: at most 2.5%. A run that judges a second schedule, because the
first one failed, has two chances of it, together at most 5%.

The facts of one document are no independent samples: the variance over documents says how many they
are worth, and never more than there are. It says so only of what was seen: of a model that loses
one document in ten as a whole, twelve documents show none lost in 28% of runs, and then all their
facts seem to be worth as many samples. So nothing *works* before 32 documents, which show none lost
in 3.4% of runs: the largest error there is of that kind, with two chances 7%.

Documents from one text count as a cluster as far as they differ less than those of several. The two
rates' intervals are Wilson's, joined by Newcombe's rule (1998). `python -m benchmarks.verdict`
measures how often a verdict is wrong. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Literal, NamedTuple

from ropewalk.evaluation.statistics import SIGNIFICANT, enough, shares_interval
from ropewalk.interval import CONFIDENCE as STATED
from ropewalk.interval import Interval

MARGIN = 0.10
"""A model works if it is not worse by more than this."""
JUDGED_FROM = 0.5
"""A model that retrieves less within its own window cannot be judged by its answers."""
LOOKS = (6, 12, 32, 48, 64)
"""The numbers of documents after which the answers are looked at."""
TO_WORK = 32
"""A model does not work by fewer documents: they may miss those that it would lose as a whole."""
CONFIDENCE = 1 - SIGNIFICANT / len(LOOKS)
"""The confidence of each look."""
MANY = 10_000
"""The number of further documents above which a decision is not promised."""

Verdict = Literal["works", "does not work", "undecided", "cannot be judged"]


class Shares(NamedTuple):
    """The share of each document's facts that were retrieved."""

    shares: Sequence[float]
    facts: float
    """The mean number of facts in a document."""
    texts: Sequence[Hashable]
    """The text that each document was taken from."""

    @property
    def rate(self) -> float:
        return math.fsum(self.shares) / len(self.shares)

    def estimate(self, level: float = STATED) -> Interval:
        """The rate, with its interval."""
        ends = shares_interval(self.shares, self.facts, enough(self.texts), level)
        return Interval.of(self.rate, ends, "share", "documents", level)


class Look(NamedTuple):
    """The answers so far."""

    documents: int
    rate: float
    reference: float
    """The rate of the unmodified model within its window."""
    difference: Interval
    """The first minus the second, with the interval of one of the looks."""
    more: int | None
    """The number of further documents that would tell at these rates; None if none would."""

    @property
    def verdict(self) -> Verdict:
        if self.reference < JUDGED_FROM:
            return "cannot be judged"
        if self.difference.is_above(-MARGIN) and self.documents >= TO_WORK:
            return "works"
        return "does not work" if self.difference.is_below(-MARGIN) else "undecided"


def look(longer: Shares, reference: Shares) -> Look:
    """The difference of two rates, with the interval of one look."""
    count, difference = len(longer.shares), longer.rate - reference.rate
    first, second = (each.estimate(CONFIDENCE).ends for each in (longer, reference))
    shown = partial(
        Interval.of, difference, unit="difference", varies="documents", level=CONFIDENCE
    )
    if first is None or second is None:
        return Look(count, longer.rate, reference.rate, shown(None), max(1, TO_WORK - count))
    below, above = longer.rate - first[0], first[1] - longer.rate
    under, over = second[1] - reference.rate, reference.rate - second[0]
    ends = difference - math.hypot(below, under), difference + math.hypot(above, over)
    mine, other = (below, under) if difference > -MARGIN else (above, over)
    left = (difference + MARGIN) ** 2 - other**2
    needed = math.ceil(count * mine**2 / left) if left > 0 else math.inf
    least = TO_WORK if difference > -MARGIN else 1
    more = max(1, needed - count, least - count)
    return Look(count, longer.rate, reference.rate, shown(ends), None if more > MANY else int(more))


def looks_of(longer: Shares, reference: Shares) -> tuple[Look, ...]:
    """All looks at so many documents, which end in one at all of them."""
    count = len(longer.shares)
    ends = [*(end for end in LOOKS if end < count), *([count] if count else [])]
    return tuple(
        look(longer._replace(shares=longer.shares[:end], texts=longer.texts[:end]), reference)
        for end in ends
    )
