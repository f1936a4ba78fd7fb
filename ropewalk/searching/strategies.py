"""The strategies by name. A row here is all that a new one needs; the conformance suite runs it."""

from __future__ import annotations

from ropewalk.errors import UnknownName
from ropewalk.searching import adaptive, evolution
from ropewalk.searching.driver import Strategy

STRATEGIES: dict[str, Strategy] = {
    "adaptive": adaptive.strategy,
    "evolution": evolution.strategy,
}


def named(name: str) -> Strategy:
    if name not in tuple(STRATEGIES):
        raise UnknownName("strategy", name, STRATEGIES)
    return STRATEGIES[name]
