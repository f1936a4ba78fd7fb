"""A search that needs a tenth of what LongRoPE's does: few numbers at a time, and early farewells.

It starts from the best of the hand-made methods and moves it by a curve: log λ plus straight lines
between a few knots over the pairs, and log m, drawn by covariance adaptation (curves.py). When a
share of what may be spent is gone, it begins again around the best so far with more knots, and last
with one a pair. In between n̂ is tried out.

A generation is a race: all of it is scored on a few documents, the better half on as many more,
and so on, and only those that are left at the end see all documents. The documents of a race are
the same for all that run in it, so what is compared is paired.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from ropewalk.schedule import FloatArray
from ropewalk.search.covariance import CovarianceAdaptation
from ropewalk.search.curves import Curves
from ropewalk.search.driver import Request, Requests
from ropewalk.search.space import Candidate, Space

EVALUATIONS = 128  # with the race that is on when they are spent, a tenth of Algorithm 1's
PATIENCE = 5  # generations with nothing new to score, before a stage is over


@dataclass(frozen=True)
class Stage:
    """A part of the search."""

    knots: int | None
    """How many numbers describe the change of λ; None for one a pair."""
    until: float
    """The share of what may be spent at which it ends."""
    width: float
    """The first standard deviation of log λ, as a share of the largest log λ."""


@dataclass(frozen=True)
class Adaptive:
    stages: tuple[Stage, ...] = (
        Stage(4, 0.4, 0.3),
        Stage(8, 0.75, 0.15),
        Stage(None, 1.0, 0.05),
    )
    scaling_width: float = 0.1
    """The first standard deviation of log m, narrowed as λ's is."""
    first_share: float = 0.25
    """The share of the documents that a whole generation sees."""

    def __call__(
        self, space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
    ) -> Requests:
        budget = (evaluations or EVALUATIONS) * documents
        book = Book(documents, rng, max(1, round(self.first_share * documents)))
        yield from book.ask(space.hand_made(), range(documents))
        for number, stage in enumerate(self.stages):
            curves = Curves(space, book.best, stage.knots)
            deviations = np.full(curves.numbers, stage.width * math.log(space.highest))
            deviations[-1] = self.scaling_width * stage.width / self.stages[0].width
            cma = CovarianceAdaptation(np.zeros(curves.numbers), np.maximum(deviations, 1e-3), rng)
            idle = 0  # generations that held nothing new
            while book.spent < stage.until * budget and idle < PATIENCE:
                before = book.spent
                points = [curves.inside(point) for point in cma.draw()]
                order = yield from book.race([curves.candidate(point) for point in points])
                cma.learn([points[i] for i in order])
                idle = idle + 1 if book.spent == before else 0
            if number == 0 and len(space.kept_positions) > 1:
                best = book.best
                tries = [
                    Candidate(best.factors, kept, best.attention_scaling)
                    for kept in space.kept_positions
                ]
                yield from book.race(tries)


class Book:
    """What the search was told, and what it cost in documents."""

    def __init__(self, documents: int, rng: np.random.Generator, first: int) -> None:
        self._documents, self._rng, self._first = documents, rng, first
        self._losses: dict[Candidate, FloatArray] = {}
        self.spent = 0

    @property
    def best(self) -> Candidate:
        """The lowest mean over all documents; ties keep the older one."""
        scores = {c: losses.mean() for c, losses in self._losses.items()}
        return min(scores, key=lambda c: np.inf if np.isnan(scores[c]) else scores[c])

    def ask(
        self, candidates: Sequence[Candidate], documents: Sequence[int]
    ) -> Generator[Request, FloatArray, FloatArray]:
        """The losses of [candidates, documents]."""
        losses = yield Request(tuple(candidates), tuple(documents))
        for candidate, row in zip(candidates, losses, strict=True):
            known = self._losses.setdefault(candidate, np.full(self._documents, np.nan))
            self.spent += int(np.isnan(known[list(documents)]).sum())
            known[list(documents)] = row
        return losses

    def race(self, candidates: Sequence[Candidate]) -> Generator[Request, FloatArray, list[int]]:
        """The places of the candidates, the best first; those that saw more documents are ahead."""
        documents = self._rng.permutation(self._documents).tolist()
        running = list(range(len(candidates)))
        seen = min(self._first, self._documents)
        gone: list[int] = []
        while True:
            losses = yield from self.ask([candidates[i] for i in running], documents[:seen])
            order = losses.mean(axis=1).argsort(kind="stable")
            running = [running[i] for i in order]
            if seen == self._documents:
                return running + gone
            left = max(1, len(running) // 2)
            running, gone = running[:left], running[left:] + gone
            seen = self._documents if left == 1 else min(2 * seen, self._documents)


strategy = Adaptive()
