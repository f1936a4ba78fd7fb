"""Which schedule is best: the one rule, for search, extend and every report.

The best schedule has the lowest loss among those that retrieve at least as much as the best
hand-designed method. A lower loss alone is no reason to take a schedule: perplexity can fall while
retrieval is lost. So where no searched schedule retrieves as much, a hand-designed one is best.

The best hand-designed method follows by the same rule: the lowest loss among the methods that
retrieve the most.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ropewalk.errors import InvalidValue


class Standing(NamedTuple):
    """How a schedule does on one set of samples."""

    loss: float
    """Lower is better; infinite where the model failed."""
    retrieval: float
    """The share of the answers that came back whole."""


def best(standings: Mapping[str, Standing], hand_designed: Collection[str]) -> str:
    """The name of the best schedule; of equal ones, the first."""
    known = [standings[name].retrieval for name in standings if name in hand_designed]
    if not known:
        raise InvalidValue(
            "standings",
            sorted(standings),
            "must contain a hand-designed method",
            f"add one of {', '.join(hand_designed)}",
        )
    able = [name for name, standing in standings.items() if standing.retrieval >= max(known)]
    return min(able, key=lambda name: standings[name].loss)


def best_hand_designed(standings: Mapping[str, Standing], hand_designed: Collection[str]) -> str:
    """The name of the best hand-designed method."""
    own = {name: standing for name, standing in standings.items() if name in hand_designed}
    return best(own, hand_designed)
