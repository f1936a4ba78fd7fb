"""Races, and the book that they are kept in."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ropewalk.schedule import FloatArray
from ropewalk.search import adaptive
from ropewalk.search.adaptive import Adaptive, Book
from ropewalk.search.driver import Request, search
from ropewalk.search.space import Candidate
from tests.search.problems import Bowl, ramp, small_space
from tests.search.test_strategies import Spy

DOCUMENTS = 8
FIELD = tuple(Candidate((1.0 + i / 100,)) for i in range(12))


def race(
    book: Book, candidates: tuple[Candidate, ...], losses: FloatArray
) -> tuple[list[int], list[Request]]:
    """The places of a race whose losses [candidates, documents] are given, and what it asked."""
    requests: list[Request] = []
    running = book.race(candidates)
    try:
        request = next(running)
        while True:
            requests.append(request)
            rows = [candidates.index(candidate) for candidate in request.candidates]
            request = running.send(losses[np.ix_(rows, request.documents)])
    except StopIteration as end:
        return list(end.value), requests


def book(first: int = 2) -> Book:
    return Book(DOCUMENTS, np.random.default_rng(0), first)


def test_the_better_half_goes_on_to_twice_the_documents() -> None:
    quality = np.random.default_rng(1).permutation(12).astype(np.float64)
    places, requests = race(book(), FIELD, np.repeat(quality[:, None], DOCUMENTS, axis=1))
    assert [len(request.candidates) for request in requests] == [12, 6, 3]
    assert [len(request.documents) for request in requests] == [2, 4, 8]
    assert places == list(quality.argsort())


def test_all_that_run_read_the_same_documents_in_the_same_order() -> None:
    losses = np.random.default_rng(2).normal(size=(12, DOCUMENTS))
    _, requests = race(book(), FIELD, losses)
    for before, after in itertools.pairwise(requests):
        assert after.documents[: len(before.documents)] == before.documents
    kept = book()
    _, first = race(kept, FIELD, losses)
    _, second = race(kept, FIELD, losses)
    assert first[0].documents != second[0].documents  # the next race is run on others


def test_a_race_without_heats_scores_all_on_everything() -> None:
    losses = np.random.default_rng(2).normal(size=(12, DOCUMENTS))
    places, requests = race(book(first=DOCUMENTS), FIELD, losses)
    assert len(requests) == 1
    assert places == list(losses.mean(axis=1).argsort())


def test_failures_are_last() -> None:
    losses = np.random.default_rng(2).normal(size=(12, DOCUMENTS))
    losses[[0, 5]] = np.inf
    places, _ = race(book(), FIELD, losses)
    assert set(places[-2:]) == {0, 5}


def test_only_who_saw_all_documents_can_be_the_best_and_nothing_is_counted_twice() -> None:
    losses = np.ones((12, DOCUMENTS))
    losses[3] = 0.5
    kept = book()
    kept_losses = np.full((1, DOCUMENTS), -1.0)
    asking = kept.ask([FIELD[0]], (0, 1))
    next(asking)
    with pytest.raises(StopIteration):
        asking.send(kept_losses[:, :2])  # the lowest of all, but only on two documents
    race(kept, FIELD[1:], losses[1:])
    assert kept.best == FIELD[3]
    spent = kept.spent
    asking = kept.ask([FIELD[3], FIELD[3]], range(DOCUMENTS))
    next(asking)
    with pytest.raises(StopIteration):
        asking.send(losses[[3, 3]])
    assert kept.spent == spent


def test_left_to_itself_it_spends_a_tenth_of_algorithm_1() -> None:
    space = small_space()
    result = search(space, Bowl(space, ramp(space)), adaptive.strategy, seed=0)
    assert 0.09 * 1344 < result.evaluations < 0.1 * 1344


def test_races_reach_further_than_full_scores_for_the_same_tokens() -> None:
    """The median over seeds, where documents differ little in what they like."""
    space = small_space(4, stock_runtimes=True)

    def reached(strategy: Adaptive) -> float:
        bowl = Bowl(space, ramp(space), spread=0.02)
        found = [search(space, bowl, strategy, seed=s, evaluations=40).score for s in range(7)]
        return float(np.median(found))

    assert reached(Adaptive(first_share=0.25)) < reached(Adaptive(first_share=1.0))


def test_kept_positions_are_tried_only_where_they_may_be() -> None:
    for stock_runtimes in (True, False):
        space = small_space(4, stock_runtimes=stock_runtimes)
        spy = Spy(adaptive.strategy)
        search(space, Bowl(space, ramp(space)), spy, seed=0)
        tried = {candidate.kept_initial_positions for candidate in spy.candidates}
        assert tried == set(space.kept_positions)
