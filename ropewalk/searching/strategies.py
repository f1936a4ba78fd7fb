"""The strategies by name. A row here is all that a new one needs; the conformance suite runs it.

Those of the table ask for losses alone. `gradient` (descent.py) asks for slopes, which only a model
has, and stands beside them.
"""

from __future__ import annotations

from ropewalk.errors import UnknownName
from ropewalk.searching import adaptive, evolution
from ropewalk.searching.driver import Strategy

STRATEGIES: dict[str, Strategy] = {
    "adaptive": adaptive.strategy,
    "evolution": evolution.strategy,
}

GRADIENT = "gradient"


def check(name: str) -> None:
    known = (GRADIENT, *STRATEGIES)
    if name not in known:
        raise UnknownName("strategy", name, known)


def named(name: str) -> Strategy:
    if name not in tuple(STRATEGIES):
        raise UnknownName("strategy", name, STRATEGIES)
    return STRATEGIES[name]
