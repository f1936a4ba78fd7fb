"""The chart of a search: its progress."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ropewalk.chart import Axis, Chart, Guide, Mark, Series


def progress(
    title: str, history: Sequence[tuple[int, float]], hand_designed: Mapping[str, float]
) -> Chart:
    """Score against tokens, around the best hand-designed method: those far above are named."""
    scores = [score for _, score in history if math.isfinite(score)]
    finite = sorted((s, name) for name, s in hand_designed.items() if math.isfinite(s))
    closest = min([s for s, _ in finite] + scores[:1], default=1.0)
    margin = max(closest - min([closest, *scores]), 0.005 * abs(closest))
    highest = closest + 2 * margin
    above = sorted({*hand_designed} - {name for s, name in finite if s <= highest})
    marks = tuple(Mark(tokens, score) for tokens, score in history)
    return Chart(
        f"{title}{'; off the scale: ' if above else ''}{', '.join(above)}",
        Axis("tokens scored"),
        Axis("loss (lower is better)", highest=highest),
        (Series("searched schedules: the best so far", marks, True, drawn="steps"),),
        horizontals=tuple(
            Guide(s, name if i else f"best hand-designed: {name}")
            for i, (s, name) in enumerate(finite)
            if s <= highest
        ),
        caption="Scores on the search documents are optimistic; compare on held-out documents.",
    )
