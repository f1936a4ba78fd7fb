"""What a search must beat to be worth its code: random candidates, and plain CMA-ES.

Both begin with the same hand-made methods and score every candidate on all documents.
"""

from __future__ import annotations

import numpy as np

from ropewalk.search.covariance import CovarianceAdaptation
from ropewalk.search.curves import Curves
from ropewalk.search.driver import Request, Requests
from ropewalk.search.space import Candidate, Space

EVALUATIONS = 1344  # as many as Algorithm 1 takes
GENERATION = 32


def random_search(
    space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
) -> Requests:
    """Independent candidates: log λ is uniform in its range, and sorted."""
    everyone = tuple(range(documents))
    seeds = space.hand_made()
    yield Request(seeds, everyone)
    spent = len(seeds)
    while spent < (evaluations or EVALUATIONS):
        yield Request(tuple(_anywhere(space, rng) for _ in range(GENERATION)), everyone)
        spent += GENERATION


def plain_covariance(
    space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
) -> Requests:
    """CMA-ES over log λ of every pair and log m, from the best hand-made method."""
    everyone = tuple(range(documents))
    seeds = space.hand_made()
    losses = yield Request(seeds, everyone)
    curves = Curves(space, seeds[int(losses.mean(axis=1).argmin())])
    deviations = np.full(curves.numbers, max(0.01, 0.3 * np.log(space.highest)))
    deviations[-1] = 0.1
    cma = CovarianceAdaptation(np.zeros(curves.numbers), deviations, rng)
    spent = len(seeds)
    while spent < (evaluations or EVALUATIONS):
        points = [curves.inside(point) for point in cma.draw()]
        losses = yield Request(tuple(curves.candidate(point) for point in points), everyone)
        cma.learn([points[i] for i in losses.mean(axis=1).argsort(kind="stable")])
        spent += len(points)


def _anywhere(space: Space, rng: np.random.Generator) -> Candidate:
    factors = np.sort(rng.uniform(0, np.log(space.highest), space.pairs))
    scaling = float(rng.choice(space.scalings))
    return space.nearest(np.exp(factors), scaling, int(rng.choice(space.kept_positions)))
