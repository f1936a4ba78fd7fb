"""What the adaptive search asks, and the book that it is kept in."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter

import numpy as np
import pytest

from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.driver import ScoreRequest, search
from ropewalk.searching.space import Candidate
from ropewalk.searching.strategies import adaptive
from ropewalk.searching.strategies.adaptive import Adaptive, Book
from tests.searching.problems import Bowl, ramp, small_space
from tests.searching.test_strategies import Spy

DOCUMENTS = 8
FIELD = tuple(Candidate((1.0 + i / 100,)) for i in range(12))


def race(book: Book, candidates: tuple[Candidate, ...], losses: FloatArray) -> list[ScoreRequest]:
    """What a race asks whose losses [candidates, documents] are given."""
    requests: list[ScoreRequest] = []
    running = book.race(candidates)
    try:
        request = next(running)
        while True:
            requests.append(request)
            rows = [candidates.index(candidate) for candidate in request.candidates]
            request = running.send(losses[np.ix_(rows, request.documents)])
    except StopIteration:
        return requests


def book(share: int = 2) -> Book:
    return Book(DOCUMENTS, np.random.default_rng(0), share)


def test_the_better_half_goes_on_to_twice_the_documents_and_one_to_all() -> None:
    quality = np.random.default_rng(1).permutation(12).astype(np.float64)
    kept = book()
    requests = race(kept, FIELD, np.repeat(quality[:, None], DOCUMENTS, axis=1))
    assert [len(request.candidates) for request in requests] == [12, 6, 3]
    assert [len(request.documents) for request in requests] == [2, 4, 8]
    assert kept.best == FIELD[int(quality.argmin())]


def test_all_that_run_read_the_same_documents_in_the_same_order() -> None:
    losses = np.random.default_rng(2).normal(size=(12, DOCUMENTS))
    kept = book()
    first = race(kept, FIELD, losses)
    for before, after in itertools.pairwise(first):
        assert after.documents[: len(before.documents)] == before.documents
    second = race(kept, FIELD, losses)
    assert first[0].documents != second[0].documents  # the next race is run on others


def test_failures_go_no_further() -> None:
    losses = np.random.default_rng(2).normal(size=(12, DOCUMENTS))
    losses[[0, 5]] = np.inf
    first, *later = race(book(), FIELD, losses)
    assert {FIELD[0], FIELD[5]} <= set(first.candidates)
    assert not {FIELD[0], FIELD[5]} & {c for request in later for c in request.candidates}


def test_a_race_on_all_documents_has_one_heat() -> None:
    losses = np.random.default_rng(2).normal(size=(12, DOCUMENTS))
    kept = book(share=DOCUMENTS)
    assert len(race(kept, FIELD, losses)) == 1
    assert kept.best == FIELD[int(losses.mean(axis=1).argmin())]


def test_only_who_saw_all_documents_can_be_the_best_and_nothing_is_counted_twice() -> None:
    losses = np.ones((12, DOCUMENTS))
    losses[3] = 0.5
    kept = book()
    asking = kept.ask([FIELD[0]], (0, 1))
    next(asking)
    with pytest.raises(StopIteration):
        asking.send(np.full((1, 2), -1.0))  # the lowest of all, but only on two documents
    race(kept, FIELD[1:], losses[1:])
    assert kept.best == FIELD[3]
    spent = kept.spent
    asking = kept.ask([FIELD[3], FIELD[3]], range(DOCUMENTS))
    next(asking)
    with pytest.raises(StopIteration):
        asking.send(losses[[3, 3]])
    assert kept.spent == spent


@pytest.mark.parametrize("share", [1, 2, 3, 8])
def test_documents_take_turns(share: int) -> None:
    kept = book(share)
    taken = [kept.next_documents() for _ in range(40)]
    assert all(len(set(documents)) == share for documents in taken)
    times = Counter(itertools.chain(*taken))
    # Where shares do not divide the documents, those left over are left out of that round.
    assert max(times.values()) - min(times.values()) <= (0 if DOCUMENTS % share == 0 else 8)


@pytest.mark.slow
def test_left_to_itself_it_spends_a_tenth_of_algorithm_1() -> None:
    space = small_space()
    result = search(space, Bowl(space, ramp(space)), adaptive.strategy, seed=0)
    assert 0.09 * 1344 < result.evaluations < 0.1 * 1344


@pytest.mark.parametrize("evaluations", [4, 9, 33])
def test_it_ends_with_a_guess_that_saw_everything(evaluations: int) -> None:
    space = small_space()
    spy = Spy(adaptive.strategy)
    result = search(space, Bowl(space, ramp(space)), spy, seed=0, evaluations=evaluations)
    assert set(spy.requests[-1].documents) == set(range(Bowl.documents))
    assert len(spy.requests[-1].candidates) == 1
    assert result.evaluations <= evaluations


class Moody(Bowl):
    """Every document has a mood about every schedule, which says nothing about any other."""

    def _loss(self, schedule: RotarySchedule, document: int) -> float:
        seed = zlib.crc32(schedule.rescale_factors.tobytes(), document)
        return super()._loss(schedule, document) + float(np.random.default_rng(seed).normal(0, 0.1))


@pytest.mark.slow
def test_looks_at_few_documents_reach_further_than_full_scores_for_the_same_tokens() -> None:
    """The mean over seeds of what is found, on documents without moods."""
    space = small_space(4, stock_runtimes=True, attention_scaling=1.0)
    bowl, moody = Bowl(space, ramp(space, 1.0)), Moody(space, ramp(space, 1.0))

    def reached(strategy: Adaptive) -> float:
        found = [search(space, moody, strategy, seed=s, evaluations=25) for s in range(8)]
        best = [space.schedule(each.finalists[0].candidate) for each in found]
        return float(np.mean([bowl.score(schedule) for schedule in best]))

    assert reached(Adaptive(share=0.25)) < reached(Adaptive(share=1.0))


def test_kept_positions_are_tried_only_where_they_may_be() -> None:
    tried = {}
    for stock_runtimes in (True, False):
        space = small_space(4, stock_runtimes=stock_runtimes, highest_factor=5.0)
        spy = Spy(adaptive.strategy)
        search(space, Bowl(space, ramp(space)), spy, seed=0, evaluations=50)
        tried[stock_runtimes] = {candidate.kept_initial_positions for candidate in spy.candidates}
    assert tried[True] == {0}
    assert len(tried[False]) > 4


def test_a_space_that_is_soon_known_ends_the_search() -> None:
    space = small_space(highest_factor=1.02, attention_scaling=1.0, stock_runtimes=True)
    result = search(space, Bowl(space, ramp(space)), adaptive.strategy, seed=0)
    assert result.evaluations <= 45  # of eight factors of three values that never fall
