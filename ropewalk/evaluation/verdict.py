"""The verdict on a model at a length: samples in blocks, until they decide. No torch.

A model works where it retrieves more than a threshold, as a mean over tasks. Answers are looked at
after 1, 2, 4, 8 and 16 blocks of samples, and the first interval that leaves out the threshold
decides. Each look has an interval of 99%, so by Bonferroni's rule all five contain the truth
in at least 95% of runs, whenever the looking stops. `python -m benchmarks.verdict` measures how
often a verdict is wrong, and how often there is one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

from ropewalk.evaluation.statistics import SIGNIFICANT, Rates, mean_rate, mean_rate_interval

THRESHOLD = 0.85
LOOKS = 5
CONFIDENCE = 1 - SIGNIFICANT / LOOKS
"""The confidence of each look."""
MANY = 100_000
"""The number of further samples above which a decision is not promised."""

Verdict = Literal["works", "does not work", "undecided"]


class Look(NamedTuple):
    """The answers so far."""

    samples: int
    """The samples of all tasks together."""
    rate: float
    """The mean over tasks."""
    low: float | None
    """The interval of one of five looks; None for too few samples."""
    high: float | None

    @property
    def verdict(self) -> Verdict:
        if self.low is not None and self.low > THRESHOLD:
            return "works"
        return "does not work" if self.high is not None and self.high < THRESHOLD else "undecided"

    @property
    def more(self) -> int | None:
        """The approximate number of further samples needed at this rate; None above `MANY`."""
        if self.low is None or self.high is None:
            return self.samples * ((1 << LOOKS) - 1)
        margin = abs(self.rate - THRESHOLD)
        reach = self.rate - self.low if self.rate > THRESHOLD else self.high - self.rate
        if margin == 0 or reach <= margin:
            return None
        # Samples of correlated text tell less than independent ones, by the same share as so far.
        z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        variance = THRESHOLD * (1 - THRESHOLD)
        share = min(1.0, variance * (z / reach) ** 2 / self.samples)
        needed = variance * (z / margin) ** 2 / share
        if needed > MANY:
            return None
        return rounded_up(max(1, math.ceil(needed) - self.samples))


def look(tasks: Rates) -> Look:
    """The mean over tasks, with the interval of one look."""
    low, high = mean_rate_interval(tasks, CONFIDENCE) or (None, None)
    return Look(sum(len(scores) for scores, _ in tasks), mean_rate(tasks), low, high)


def blocks(samples: int, looks: int = LOOKS) -> Sequence[int]:
    """The number of samples of each task in every look."""
    return [samples * 2**i for i in range(looks)]


def rounded_up(count: int) -> int:
    """To two digits."""
    digits: int = 10 ** max(0, len(str(count)) - 2)
    return math.ceil(count / digits) * digits
