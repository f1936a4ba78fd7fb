"""The controls that a search must beat to be worth its code: random candidates, plain CMA-ES.

Both begin with the same hand-designed methods and score every candidate on all documents.
"""

from __future__ import annotations

import numpy as np

from benchmarks.covariance import CovarianceAdaptation
from ropewalk.searching.coordinates import Coordinates
from ropewalk.searching.driver import Requests, ScoreRequest, Strategy
from ropewalk.searching.space import Candidate, Space

EVALUATIONS = 1344  # as many as Algorithm 1 takes
GENERATION = 32


def random_search(
    space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
) -> Requests:
    """Independent candidates: log λ is uniform in its range, and sorted."""
    everyone = tuple(range(documents))
    seeds = space.hand_designed()
    yield ScoreRequest(seeds, everyone)
    spent = len(seeds)
    while spent < (evaluations or EVALUATIONS):
        yield ScoreRequest(tuple(_anywhere(space, rng) for _ in range(GENERATION)), everyone)
        spent += GENERATION


def plain_covariance(
    space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
) -> Requests:
    """CMA-ES over log λ of every pair, log m and n̂, from the best hand-designed method."""
    everyone = tuple(range(documents))
    seeds = space.hand_designed()
    losses = yield ScoreRequest(seeds, everyone)
    coordinates = Coordinates(space, seeds[int(losses.mean(axis=1).argmin())])
    origin = np.zeros(coordinates.numbers)
    cma = CovarianceAdaptation(origin, np.ones(coordinates.numbers), rng)
    spent = len(seeds)
    while spent < (evaluations or EVALUATIONS):
        candidates = tuple(coordinates.candidate(point) for point in cma.draw())
        losses = yield ScoreRequest(candidates, everyone)
        order = losses.mean(axis=1).argsort(kind="stable")
        cma.learn([coordinates.point(candidates[i]) for i in order])
        spent += len(candidates)


def _anywhere(space: Space, rng: np.random.Generator) -> Candidate:
    factors = np.sort(rng.uniform(0, np.log(space.highest), space.pairs))
    scaling = float(rng.choice(space.scalings))
    return space.nearest(np.exp(factors), scaling, int(rng.choice(space.kept_positions)))


CONTROLS: dict[str, Strategy] = {"random": random_search, "covariance": plain_covariance}
