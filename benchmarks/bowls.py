"""Two readings of Algorithm 1's mutation (Ding et al. 2024), on four bowls whose optimum is known.

    python -m benchmarks.bowls        under a minute of one core

The paper asks for a mutation under the constraint that λ never falls from a pair to the next. One
reading draws a gene from its whole range and sorts; the public code draws between the two
neighbours. Each searches 64 pairs as published, in 1,344 evaluations, for schedules that no seed
is: the loss is the mean squared distance in log λ. The share of the gap that it closes is 0 at the
best seed (linear, NTK, YaRN) and 1 at the optimum; the mean over two seeds of the search.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import paragraph
from ropewalk.outputs import write_atomically
from ropewalk.schedule import FloatArray, RotaryGeometry, RotarySchedule
from ropewalk.searching.driver import search
from ropewalk.searching.model.settings import published_space
from ropewalk.searching.space import Candidate, Space
from ropewalk.searching.strategies import evolution

RESULTS = Path(__file__).with_name("results") / "bowls.json"
EVALUATIONS, SEEDS = 1344, 2
READINGS = {"from the whole range": evolution.Nursery}

# From 4k to 32k, as factors by the place of a pair from 0 to 1.
SCALE = 8.0
BOWLS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "an early ramp": lambda x: SCALE ** np.clip((x - 0.1) / 0.3, 0, 1),
    "a late ramp": lambda x: SCALE ** np.clip((x - 0.5) / 0.3, 0, 1),
    "a steep power": lambda x: SCALE**x**2.5,
    "two steps": lambda x: np.where(x < 0.35, 1.0, np.where(x < 0.65, 2.5, 9.0)),
}


class Between(evolution.Nursery):
    """Mutations of the public code: a gene is drawn between its two neighbours."""

    def _mutated(self, parent: Candidate) -> Candidate:
        steps = self._space.steps(parent)
        *chosen, kept, _ = self._chosen(len(steps)).tolist()
        for i in np.flatnonzero(chosen).tolist():
            low = steps[i - 1] if i else self._lowest[0]
            high = steps[i + 1] if i + 1 < len(steps) else self._highest
            steps[i] = self._rng.integers(low, high, endpoint=True)
        positions = parent.kept_initial_positions
        if kept:
            positions = int(self._rng.choice(self._space.kept_positions))
        return self._space.at(steps, parent.attention_scaling, positions)


READINGS["between the neighbours"] = Between


class Bowl:
    """The mean squared distance to an optimum in log λ, as the loss of one document."""

    documents, tokens_per_document = 1, 1

    def __init__(self, optimum: FloatArray) -> None:
        self._optimum = np.log(optimum)

    def losses(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        return np.array([[self.loss(each)] for each in schedules])

    def loss(self, schedule: RotarySchedule) -> float:
        return float(((np.log(schedule.rescale_factors) - self._optimum) ** 2).mean())


def main() -> None:
    start = RotarySchedule.plain(RotaryGeometry(128, 128, 10_000.0, 4096))
    space = published_space(Space(start, int(SCALE) * start.length))
    shares: dict[str, dict[str, float]] = {}
    for reading, nursery in READINGS.items():
        with patch.object(evolution, "Nursery", nursery):
            shares[reading] = {name: closed(space, of) for name, of in BOWLS.items()}
        print(reading, shares[reading], flush=True)
    found = {"shares": shares, "machine": machine()}
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")


def closed(space: Space, optimum: Callable[[FloatArray], FloatArray]) -> float:
    """The share of the gap between the best seed and the optimum."""
    bowl = Bowl(optimum(np.arange(space.pairs) / (space.pairs - 1)))
    before = min(bowl.loss(space.schedule(seed)) for seed in space.seeds())
    ends = []
    for seed in range(SEEDS):
        found = search(space, bowl, evolution.Evolution(), seed=seed, evaluations=EVALUATIONS)
        ends.append(bowl.loss(space.schedule(found.finalists[0].candidate)))
    return 1 - float(np.mean(ends)) / before


def blocks() -> dict[str, str]:
    found = json.loads(RESULTS.read_text("utf-8"))
    where = measured_on(found["machine"], "python -m benchmarks.bowls")
    said = paragraph(
        "Which reading of a mutation is better depends on the optimum. Share of the gap between "
        f"the best seed and the optimum that is closed in {EVALUATIONS:,} evaluations, on bowls "
        f"of {SCALE:g} times the length ({where}):"
    )
    rows = [f"| a mutation is drawn | {' | '.join(BOWLS)} |", "|---" * (1 + len(BOWLS)) + "|"]
    for reading, own in found["shares"].items():
        rows.append(f"| {reading} | {' | '.join(f'{share:.0%}' for share in own.values())} |")
    return {PAGE: "\n".join([said, "", *rows])}


if __name__ == "__main__":
    main()
