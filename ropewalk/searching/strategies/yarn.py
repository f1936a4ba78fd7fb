"""A search over YaRN's own three numbers: which pairs it slows, and how much attention it adds.

Its result is YaRN with other parameters, so each runtime that knows YaRN serves it without a list
of factors. There are 96 candidates: `beta_fast` from 8 to 64 and `beta_slow` from 0.5 to 4, in
doublings, and an attention factor of 1 + 0.1·g·ln s with g from 0 to 1.25; those with equal
factors count once. As in the adaptive search, a smooth surface through all scores decides, and a
candidate sees a quarter of the documents at a time. Where YaRN does not compose on the start, or
short sequences are searched for, the adaptive search takes its place.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ropewalk.scaling import log_growth, yarn
from ropewalk.schedule import FloatArray
from ropewalk.searching.driver import Requests
from ropewalk.searching.space import Candidate, Space
from ropewalk.searching.strategies import adaptive
from ropewalk.searching.surface import Surface

EVALUATIONS = 40
FAST, SLOW = (32.0, 8.0, 16.0, 64.0), (1.0, 0.5, 2.0, 4.0)
GROWTHS = (1.0, 0.0, 0.25, 0.5, 0.75, 1.25)
"""Each begins with YaRN's own value."""
SPREAD = 8
"""Candidates of the first look, besides YaRN as published."""
ASKED = 4
FINALS = 3
"""Times that the lowest point of the expected surface sees all documents."""


def strategy(
    space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
) -> Requests:
    coordinates = candidates(space)
    if not coordinates:
        yield from adaptive.strategy(space, documents, rng, evaluations)
        return
    points = np.array(list(coordinates.values()))
    every = list(coordinates)
    budget = (evaluations or EVALUATIONS) * documents
    book = adaptive.Book(documents, rng, max(1, round(adaptive.strategy.share * documents)))
    # YaRN as published sees all documents: it is what has to be beaten.
    yield from book.ask(every[:1], range(documents))
    spread = rng.choice(len(every), min(SPREAD, len(every)), replace=False)
    yield from book.ask([every[i] for i in spread], book.next_documents())

    def surface() -> Surface:
        scored = np.array([coordinates[candidate] for candidate in book.losses])
        return Surface(scored, np.array(list(book.losses.values())))

    # Where the surface may be lowest is asked next, on a share of the documents.
    idle = 0
    while book.spent + ASKED * book.share <= budget - FINALS * documents:
        before = book.spent
        drawn = surface().drawn(points, ASKED, rng).argmin(axis=0)
        yield from book.ask(
            [every[i] for i in dict.fromkeys(drawn.tolist())], book.next_documents()
        )
        idle = idle + 1 if book.spent == before else 0
        if idle == adaptive.PATIENCE:
            break
    # The rest of the budget settles which of the lowest is best, on all documents.
    for _ in range(FINALS):
        whole = {each for each, losses in book.losses.items() if not np.isnan(losses).any()}
        order = surface().mean(points).argsort(kind="stable")
        left = [every[i] for i in order.tolist() if every[i] not in whole]
        if left:
            yield from book.ask(left[:1], range(documents))


def candidates(space: Space) -> dict[Candidate, FloatArray]:
    """The place of each candidate for the surface, YaRN as published first; none if YaRN does not
    compose, or the space does not hold it."""
    start = space.start
    if space.recover or start.geometric_base is None or start.geometry.resting_pairs:
        return {}
    fixed = space.attention_scaling
    points: dict[Candidate, FloatArray] = {}
    seen = set()
    for fast, slow, growth in product(FAST, SLOW, GROWTHS if fixed is None else GROWTHS[:1]):
        factor = log_growth(space.scale, growth) if fixed is None else fixed
        made = yarn.schedule(
            start, space.target_length, beta_fast=fast, beta_slow=slow, attention_factor=factor
        )
        factors = made.rescale_factors / start.rescale_factors
        held = (space.lowest - 1e-9 <= factors).all() and factors.max() <= space.highest
        if held and (alike := (factors.tobytes(), factor)) not in seen:
            seen.add(alike)
            points[space.of_method(made)] = np.array([np.log2(fast), np.log2(slow), 2 * growth])
    return points
