"""A search for small budgets: a smooth surface through all scores decides, not the lowest score.

The loss of a schedule jumps with every small change of its factors, and each document sees other
jumps. Algorithm 1 takes the best of many scores on a few documents, and so in part the luckiest.
Here no score is believed alone: a smooth surface goes through all of them (surface.py), over the
changes of log λ, log m and n̂ from the best of the hand-designed methods. So one candidate need not
see many documents, and one document need not be seen by many candidates: a quarter of the documents
at a time are looked at, others every time, by a few candidates.

Which ones is decided by Thompson's rule: a surface is drawn out of all that may be true, and its
lowest point is asked for. Where little is known, surfaces differ and are tried out; where much is,
they agree. The points are drawn around the lowest point so far and around the start, with changes
that are alike for neighbouring pairs. A few times, and last, the lowest point of the expected
surface sees all documents, which is what makes a candidate a result.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from ropewalk.schedule import FloatArray
from ropewalk.searching.coordinates import Coordinates
from ropewalk.searching.driver import Requests, ScoreRequest
from ropewalk.searching.space import Candidate, Space
from ropewalk.searching.surface import Shape, Surface

EVALUATIONS = 134  # a tenth of Algorithm 1's
RESHAPED = 1.3  # the surface's shape is looked for anew when so many times the points are known
SPREADS = ((1.0, False), (0.5, False), (0.25, False), (0.5, True), (1.0, True))
"""The spread of drawn candidates, in usual widths, and True for those around the start."""
PATIENCE = 20  # requests with nothing new to score, before the space counts as known
DESCENT = 5  # times that the lowest point is looked for around the lowest


@dataclass(frozen=True)
class Adaptive:
    batch: int = 4
    """Candidates of one request."""
    share: float = 0.25
    """The share of the documents that they see."""
    looks: tuple[float, ...] = (0.25, 0.5)
    """The shares of what may be spent after which the best guess sees all documents."""
    reach: float = 0.25
    """Changes of pairs so far apart, as a share of all pairs, are still somewhat alike."""
    steepness: float = 3.0
    """A change of the fastest pair counts e to this times as much as one of the slowest."""
    independent: float = 0.1
    """The share of a pair's change that is its own."""
    drawn: int = 100
    """The candidates among which the next are sought."""

    def __call__(
        self, space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
    ) -> Requests:
        budget = (evaluations or EVALUATIONS) * documents
        book = Book(documents, rng, max(1, round(self.share * documents)))
        yield from book.race(space.hand_designed())
        guess = Guess(self, space, book)
        looks = [look * budget for look in self.looks]
        last = 2 * documents  # what it takes to look at the best guess, learn from it, and again
        idle = 0  # requests in a row that held nothing new
        while book.spent + self.batch * book.share <= budget - last and idle < PATIENCE:
            before = book.spent
            if looks and book.spent >= looks[0]:
                looks.pop(0)
                yield from book.ask([guess.lowest(rng)], range(documents))
            yield from book.ask(guess.worth_a_look(rng), book.next_documents())
            guess.learn()
            idle = idle + 1 if book.spent == before else 0
        yield from book.ask([guess.lowest(rng)], range(documents))
        guess.learn()
        yield from book.ask([guess.lowest(rng)], range(documents))


class Book:
    """The losses that the search was told, and their cost in documents."""

    def __init__(self, documents: int, rng: np.random.Generator, share: int) -> None:
        self.documents, self.share = documents, share
        self._rng = rng
        self._waiting: list[int] = []
        self.losses: dict[Candidate, FloatArray] = {}
        """By document; nan if it was not asked."""
        self.spent = 0

    @property
    def best(self) -> Candidate:
        """The lowest mean over all documents; ties keep the older one."""
        scores = {c: losses.mean() for c, losses in self.losses.items()}
        return min(scores, key=lambda c: np.inf if np.isnan(scores[c]) else scores[c])

    def next_documents(self) -> list[int]:
        """A share of those not seen this round, whose order is drawn anew each time.

        A round ends when fewer than a share are left: these are left out of it.
        """
        if len(self._waiting) < self.share:
            self._waiting = self._rng.permutation(self.documents).tolist()
        taken, self._waiting = self._waiting[: self.share], self._waiting[self.share :]
        return taken

    def ask(
        self, candidates: Sequence[Candidate], documents: Sequence[int]
    ) -> Generator[ScoreRequest, FloatArray, FloatArray]:
        """The losses of [candidates, documents]."""
        losses = yield ScoreRequest(tuple(candidates), tuple(documents))
        for candidate, row in zip(candidates, losses, strict=True):
            scored = self.losses.setdefault(candidate, np.full(self.documents, np.nan))
            self.spent += int(np.isnan(scored[list(documents)]).sum())
            scored[list(documents)] = row
        return losses

    def race(self, candidates: Sequence[Candidate]) -> Requests:
        """Ask all on a share of the documents, the better half on twice as many, one on all."""
        documents = self._rng.permutation(self.documents).tolist()
        running, seen = list(candidates), self.share
        while True:
            losses = yield from self.ask(running, documents[:seen])
            if seen == self.documents:
                return
            order = losses.mean(axis=1).argsort(kind="stable")
            running = [running[i] for i in order[: max(1, len(running) // 2)]]
            seen = self.documents if len(running) == 1 else min(2 * seen, self.documents)


class Guess:
    """A guess at the best candidate."""

    def __init__(self, search: Adaptive, space: Space, book: Book) -> None:
        self._search, self._book = search, book
        self._coordinates = Coordinates(space, book.best)
        numbers, pairs = self._coordinates.numbers, space.pairs
        # Of the changes that are drawn: those of neighbouring pairs are alike.
        covariance = np.eye(numbers)
        place = np.arange(pairs) / pairs
        apart = (place[:, None] - place) / search.reach
        covariance[:pairs, :pairs] *= search.independent
        covariance[:pairs, :pairs] += (1 - search.independent) * np.exp(-0.5 * apart**2)
        self._root = np.linalg.cholesky(covariance)
        self._lowest = book.best
        # How much a change of each coordinate matters: the most for the fastest pair.
        self._weights = np.array([*np.exp(search.steepness * (0.5 - place)), 1.0, 1.0])
        self._known: dict[Candidate, FloatArray] = {}
        self._shape: Shape | None = None
        self._shaped_at = 0  # how many candidates were known then
        self._offsets: FloatArray | None = None
        self.learn()

    def learn(self) -> None:
        """Draw the surface anew through all that the book knows."""
        for candidate in self._book.losses:
            if candidate not in self._known:
                self._known[candidate] = self._place(candidate)
        if len(self._known) >= RESHAPED * self._shaped_at:
            self._shape, self._shaped_at = None, len(self._known)
        points = np.array(list(self._known.values()))
        losses = np.array(list(self._book.losses.values()))
        self._surface = Surface(points, losses, self._shape, self._offsets)
        self._shape, self._offsets = self._surface.shape, self._surface.offsets
        self._lowest = self._lower([self._lowest])

    def worth_a_look(self, rng: np.random.Generator) -> list[Candidate]:
        """The lowest points of surfaces that may be the true one."""
        candidates = self._around(rng)
        points = np.array([self._place(candidate) for candidate in candidates])
        drawn = self._surface.drawn(points, self._search.batch, rng)
        return list(dict.fromkeys(candidates[i] for i in drawn.argmin(axis=0)))

    def lowest(self, rng: np.random.Generator) -> Candidate:
        """The lowest point of the expected surface that is found from the lowest so far."""
        for _ in range(DESCENT):
            self._lowest = self._lower(self._around(rng))
        return self._lowest

    def _around(self, rng: np.random.Generator) -> list[Candidate]:
        """Candidates around the lowest point so far, and around the start."""
        each = self._search.drawn // len(SPREADS)
        changes = rng.standard_normal((len(SPREADS), each, len(self._root))) @ self._root.T
        lowest = self._coordinates.point(self._lowest)
        points = [
            spread * change + (0 if from_start else lowest)
            for (spread, from_start), drawn in zip(SPREADS, changes, strict=True)
            for change in drawn
        ]
        return [self._coordinates.candidate(point) for point in points]

    def _lower(self, candidates: Sequence[Candidate]) -> Candidate:
        """The lowest of these and of those that are known."""
        points = [*self._known.values(), *map(self._place, candidates)]
        return [*self._known, *candidates][int(self._surface.mean(np.array(points)).argmin())]

    def _place(self, candidate: Candidate) -> FloatArray:
        """The place of a candidate for the surface."""
        return self._weights * self._coordinates.point(candidate)


strategy = Adaptive()
