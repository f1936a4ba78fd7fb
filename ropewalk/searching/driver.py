"""Runs a strategy against an objective: no known score is computed again, nor lost in a crash.

A strategy is a generator. It yields requests, some candidates on some documents, and is sent their
losses; all that is random in it comes from one generator. So resuming is replaying: the strategy
runs again from its seed and the journal answers, until it has no more to say. Nothing of a
strategy's state is ever stored.

The best is the candidate with the lowest mean over all documents. One that was stopped before it
had seen them all has no score.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np

from ropewalk.errors import InputError
from ropewalk.run_directory import Journal
from ropewalk.schedule import FloatArray
from ropewalk.searching.objective import Objective
from ropewalk.searching.space import Candidate, Space
from ropewalk.values import decode


class ScoreRequest(NamedTuple):
    """A strategy's question; it is answered by losses of [candidates, documents].

    The losses of a candidate that failed are infinite.
    """

    candidates: tuple[Candidate, ...]
    documents: tuple[int, ...]


Requests = Generator[ScoreRequest, FloatArray, None]


class Strategy(Protocol):
    def __call__(
        self, space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
    ) -> Requests:
        """The requests of one search.

        `evaluations` is what it may spend, in scores over all documents; None for as many as the
        strategy itself finds right. It is stopped when they are spent.
        """
        ...


class Point(NamedTuple):
    """The state of a search after a candidate was scored."""

    tokens: int
    score: float
    """The best score so far."""


class Progress(NamedTuple):
    evaluations: float
    tokens: int
    score: float
    best: Candidate


class Finalist(NamedTuple):
    candidate: Candidate
    score: float


class Outcome(NamedTuple):
    finalists: tuple[Finalist, ...]
    """The best distinct candidates, best first: for a choice by something else than the score.

    None if every candidate failed, or none had seen all documents when the budget was spent.
    """
    history: tuple[Point, ...]
    evaluations: float
    """The work, in scores over all documents."""
    tokens: int


def search(
    space: Space,
    objective: Objective,
    strategy: Strategy,
    *,
    seed: int,
    evaluations: int | None = None,
    tokens: int | None = None,
    journal: Journal | None = None,
    at_once: int = 1,
    finalists: int = 8,
    progress: Callable[[Progress], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> Outcome:
    """The best candidate that the strategy finds within its budget.

    `at_once` candidates are handed to the objective together, and what it returns is on disk before
    the next are: as many as it can score side by side, since a crash loses so many.
    """
    allowance = _allowance(objective, evaluations, tokens)
    rng = np.random.default_rng(seed)
    ledger = Ledger(space, objective, seed, allowance, journal, at_once, progress, notice)
    requests = strategy(
        space, objective.documents, rng, allowance and allowance / objective.documents
    )
    try:
        request = next(requests)
        while (losses := ledger.answer(request, _state_of(rng))) is not None:
            request = requests.send(losses)
    except StopIteration:
        pass
    finally:
        requests.close()
    ledger.expect_end()
    return ledger.result(finalists)


class Unit(NamedTuple):
    """One piece of work and one line of the journal: a candidate on documents new to it."""

    candidate: Candidate
    documents: tuple[int, ...]


@dataclass
class Ledger:
    """All that is known of the candidates of a search, in the order in which it became known."""

    space: Space
    objective: Objective
    seed: int
    allowance: int | None
    journal: Journal | None
    at_once: int
    progress: Callable[[Progress], None] | None
    notice: Callable[[str], None] | None

    def __post_init__(self) -> None:
        self._told = iter(list(self.journal.records) if self.journal else [])
        self._losses: dict[Candidate, dict[int, float]] = {}
        self._scores: dict[Candidate, float] = {}
        self._best: Candidate | None = None
        self._history: list[Point] = []
        self._spent = 0  # in documents

    def answer(self, request: ScoreRequest, state: str) -> FloatArray | None:
        """The losses of a request, or None if they cost more than is left."""
        wanted = self._unknown(request)
        units = self._affordable(wanted)
        fresh = [unit for unit in units if not self._retold(unit, state)]
        for _, group in groupby(fresh, key=lambda unit: unit.documents):
            alike = list(group)
            for start in range(0, len(alike), self.at_once):
                self._score(alike[start : start + self.at_once], state)
        if len(units) < len(wanted):
            return None
        return np.array(
            [[self._losses[c][d] for d in request.documents] for c in request.candidates]
        )

    def expect_end(self) -> None:
        """Refuse a journal that knows more than the search came to ask."""
        if next(self._told, None) is not None:
            raise self._of_another_search()

    def result(self, finalists: int) -> Outcome:
        ranked = sorted(self._scores.items(), key=lambda item: item[1])
        return Outcome(
            tuple(Finalist(*item) for item in ranked[:finalists] if np.isfinite(item[1])),
            tuple(self._history),
            self._spent / self.objective.documents,
            self._tokens,
        )

    @property
    def _tokens(self) -> int:
        return self._spent * self.objective.tokens_per_document

    def _unknown(self, request: ScoreRequest) -> list[Unit]:
        """The part of a request that was never scored, each candidate once."""
        units = []
        for candidate in dict.fromkeys(request.candidates):
            scored = self._losses.get(candidate, {})
            if documents := tuple(d for d in request.documents if d not in scored):
                units.append(Unit(candidate, documents))
        return units

    def _affordable(self, units: list[Unit]) -> list[Unit]:
        if self.allowance is None:
            return units
        costs = self._spent + np.cumsum([len(unit.documents) for unit in units])
        return units[: int(np.searchsorted(costs, self.allowance, side="right"))]

    def _retold(self, unit: Unit, state: str) -> bool:
        """True if the journal had the answer."""
        record = next(self._told, None)
        if record is None:
            return False
        losses = record.get("losses")
        if record | self._line(unit, state) != record or not isinstance(losses, list):
            raise self._of_another_search()
        losses = decode(tuple[float | None, ...], losses, "losses")
        if len(losses) != len(unit.documents):
            raise self._of_another_search()
        self._enter(unit, np.array([np.inf if x is None else x for x in losses]))
        return True

    def _score(self, units: list[Unit], state: str) -> None:
        """Units of the same documents."""
        documents = units[0].documents
        schedules = [self.space.schedule(unit.candidate) for unit in units]
        losses = self.objective.losses(schedules, documents)
        assert losses.shape == (len(units), len(documents)), "losses are [schedules, documents]"
        failed = [not np.isfinite(row).all() for row in losses]
        losses = np.where(np.array(failed)[:, None], np.inf, losses)
        if self.journal:
            self.journal.append(
                self._line(unit, state) | {"losses": [None if lost else x for x in row.tolist()]}
                for unit, row, lost in zip(units, losses, failed, strict=True)
            )
        for unit, row, lost in zip(units, losses, failed, strict=True):
            if lost and self.notice:
                self.notice(f"a candidate failed and gets the worst score: {unit.candidate}")
            self._enter(unit, row)

    def _line(self, unit: Unit, state: str) -> dict[str, object]:
        """All of a line but its losses."""
        return {
            "candidate": unit.candidate.to_json(),
            "documents": list(unit.documents),
            "seed": self.seed,
            "random_state": state,
        }

    def _enter(self, unit: Unit, losses: FloatArray) -> None:
        scored = self._losses.setdefault(unit.candidate, {})
        scored.update(zip(unit.documents, losses.tolist(), strict=True))
        self._spent += len(unit.documents)
        if len(scored) == self.objective.documents:
            self._rank(unit.candidate, scored)
        if self.progress and self._best is not None:
            evaluations = self._spent / self.objective.documents
            score = self._scores[self._best]
            self.progress(Progress(evaluations, self._tokens, score, self._best))

    def _rank(self, candidate: Candidate, losses: dict[int, float]) -> None:
        # In the order of the documents, so that a sum does not depend on which came first.
        score = float(np.mean([losses[d] for d in range(self.objective.documents)]))
        self._scores[candidate] = score
        if np.isfinite(score) and (self._best is None or score < self._scores[self._best]):
            self._best = candidate
        if self._best is not None:
            self._history.append(Point(self._tokens, self._scores[self._best]))

    def _of_another_search(self) -> InputError:
        assert self.journal
        return InputError(
            f"{self.journal.path}: is the journal of another search (its candidates are not those "
            "that these settings lead to); give the same settings, or a new directory"
        )


def _allowance(objective: Objective, evaluations: int | None, tokens: int | None) -> int | None:
    """The budget, in documents."""
    budgets = ((evaluations, 1 / objective.documents), (tokens, objective.tokens_per_document))
    allowed = [int(budget / cost + 1e-9) for budget, cost in budgets if budget is not None]
    return min(allowed, default=None)


def _state_of(rng: np.random.Generator) -> str:
    """A digest of a generator's state."""
    state = json.dumps(rng.bit_generator.state, sort_keys=True)
    return hashlib.sha256(state.encode()).hexdigest()[:16]
