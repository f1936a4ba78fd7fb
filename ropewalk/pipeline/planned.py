"""A run of `extend` planned to fit a budget: what it may spend at most, before anything is read.

The search goes first, then documents of the verdict, then the race of the hand-designed methods.
The plan, not the budget, is a run's identity: a run resumes under any budget that leads to the same
plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ropewalk.budget import Budget
from ropewalk.errors import InvalidValue
from ropewalk.evaluation.verdict import LOOKS, TO_WORK
from ropewalk.pipeline.settings import ExtendSettings

FEWER_EVALUATIONS = (10, 5, 0)


def planned(
    settings: ExtendSettings, budget: Budget, cost: Callable[[ExtendSettings], float]
) -> ExtendSettings:
    """The largest plan of these settings that costs no more than the budget, in its unit."""
    for smaller in _smaller(settings):
        if cost(smaller) <= budget.amount:
            return smaller
    needed = budget._replace(amount=cost(smaller))
    raise InvalidValue(
        "budget",
        str(budget),
        "is too small for any decision",
        f"give {needed} or more, or a shorter target (`to`)",
    )


def _smaller(settings: ExtendSettings) -> Iterator[ExtendSettings]:
    """These settings, and smaller ones, in the order in which they are given up."""
    most = settings.evaluations or 0
    for evaluations in (most, *(n for n in FEWER_EVALUATIONS if n < most)):
        yield replace(settings, evaluations=evaluations)
    for race in (0, None):
        for documents in (n for n in reversed(LOOKS) if TO_WORK <= n <= settings.documents):
            yield replace(settings, evaluations=race, documents=documents)
