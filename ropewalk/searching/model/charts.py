"""Charts of a search: its progress, and each schedule's score next to its cost on short text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ropewalk.chart import Axis, Chart, Guide, Mark, Series


class Offer(NamedTuple):
    """A schedule's score at the target, and its cost on short text."""

    label: str
    score: float
    cost: float
    low: float | None
    high: float | None


def progress(
    title: str, history: Sequence[tuple[int, float]], hand_designed: Mapping[str, float]
) -> Chart:
    """Score against tokens, around the best hand-designed method: those far above are named."""
    scores = [score for _, score in history if math.isfinite(score)]
    known = sorted((s, name) for name, s in hand_designed.items() if math.isfinite(s))
    closest = min([s for s, _ in known] + scores[:1], default=1.0)
    margin = max(closest - min([closest, *scores]), 0.005 * abs(closest))
    highest = closest + 2 * margin
    above = sorted({*hand_designed} - {name for s, name in known if s <= highest})
    marks = tuple(Mark(tokens, score) for tokens, score in history)
    return Chart(
        f"{title}{'; above the picture: ' if above else ''}{', '.join(above)}",
        Axis("tokens scored"),
        Axis("score (lower is better)", highest=highest),
        (Series("searched schedules: the best so far", marks, True, drawn="steps"),),
        horizontals=tuple(
            Guide(s, name if i else f"best hand-designed: {name}")
            for i, (s, name) in enumerate(known)
            if s <= highest
        ),
        caption="On the documents of the search, whose best is below the line by selection too; "
        "the table of held-out documents compares without bias.",
    )


def trade_off(offers: Sequence[Offer], limit: float, target: str, chosen: str) -> Chart:
    """Cost on short text against the score at the target: the best lie low and to the left."""
    return Chart(
        "The target against short text",
        Axis(f"score at {target} (lower is better)"),
        Axis("nats a token, at the original length"),
        tuple(
            Series(
                own.label,
                (Mark(own.score, own.cost, own.low, own.high),),
                own.label == chosen,
                drawn="points",
            )
            for own in offers
        ),
        horizontals=(Guide(limit, "limit"),),
        caption="Of the text, above the unmodified model, on documents that decided; the best at "
        "the target is taken among those below the limit.",
    )
