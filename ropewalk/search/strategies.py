"""The strategies by name. A row here is all that a new one needs; the conformance suite runs it."""

from __future__ import annotations

from ropewalk.errors import UnknownName
from ropewalk.search import adaptive, controls, evolution
from ropewalk.search.driver import Strategy

STRATEGIES: dict[str, Strategy] = {
    "adaptive": adaptive.strategy,
    "evolution": evolution.strategy,
    "random": controls.random_search,
    "covariance": controls.plain_covariance,
}


def named(name: str) -> Strategy:
    if name not in STRATEGIES:
        raise UnknownName("strategy", name, STRATEGIES)
    return STRATEGIES[name]
