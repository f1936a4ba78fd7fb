"""A run of `extend` planned to fit a budget: what it may spend at most, before anything is read.

The looks of the verdict go first, then evaluations of the search, then samples, then the lengths
between the window and the target, and last a training that would be done only if needed. The plan,
not the budget, is a run's identity: a run resumes under any budget that leads to the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from ropewalk.budget import Budget
from ropewalk.errors import InvalidValue
from ropewalk.pipeline.settings import ExtendSettings

FEWER_EVALUATIONS, FEWER_SAMPLES = (10, 5, 1), (10, 5, 2)


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
        "is too small for any answer",
        f"give {needed} or more, or a shorter target (`to`)",
    )


def _smaller(settings: ExtendSettings) -> Iterator[ExtendSettings]:
    """These settings, and smaller ones, in the order in which they are given up."""
    ends = (settings.lengths[0], settings.target_length)
    for lengths, samples, evaluations, looks in product(
        dict.fromkeys((settings.lengths, tuple(dict.fromkeys(ends)))),
        (settings.samples, *(n for n in FEWER_SAMPLES if n < settings.samples)),
        (settings.evaluations, *(n for n in FEWER_EVALUATIONS if n < settings.evaluations)),
        range(settings.looks, 0, -1),
    ):
        yield replace(
            settings, lengths=lengths, samples=samples, evaluations=evaluations, looks=looks
        )
    if settings.train_if_needed:
        yield from _smaller(untrained(settings))


def untrained(settings: ExtendSettings) -> ExtendSettings:
    """The same without training."""
    return replace(settings, train_steps=0, train_if_needed=False)


def least(settings: ExtendSettings) -> ExtendSettings:
    """The smallest of these settings, with the training that they ask for."""
    *_, last = _smaller(replace(settings, train_if_needed=False))
    return last
