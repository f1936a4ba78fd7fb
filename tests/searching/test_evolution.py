"""Algorithm 1 as published: how much it scores, and in what order."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from ropewalk.schedule import RotarySchedule
from ropewalk.searching.driver import Outcome, search
from ropewalk.searching.space import Space
from ropewalk.searching.strategies import evolution
from ropewalk.searching.strategies.evolution import Evolution, Nursery
from tests.searching.problems import SMALL, Bowl, ramp, small_space, violations
from tests.searching.test_strategies import Spy


def run(space: Space, strategy: Evolution = evolution.strategy) -> tuple[Outcome, Spy]:
    spy = Spy(strategy)
    return search(space, Bowl(space, ramp(space)), spy, seed=0), spy


def test_the_published_sizes_come_to_1344_evaluations() -> None:
    result, spy = run(small_space())
    assert result.evaluations == 1344
    assert [len(request.candidates) for request in spy.requests] == [64] + 40 * [32]
    assert len(set(spy.candidates)) == 1344


def test_beyond_512k_the_sizes_are_halved() -> None:
    start = RotarySchedule.plain(dataclasses.replace(SMALL, original_length=2**18))
    result, spy = run(Space(start, 2**20))
    assert result.evaluations == 32 + 40 * 16
    assert [len(request.candidates) for request in spy.requests] == [32] + 40 * [16]


def test_the_seeds_come_first_and_all_documents_are_read() -> None:
    space = small_space()
    _, spy = run(space, Evolution(generations=2))
    assert spy.requests[0].candidates[:3] == space.seeds()
    assert {request.documents for request in spy.requests} == {tuple(range(Bowl.documents))}


def test_the_first_population_is_the_seeds_and_their_mutations() -> None:
    space = small_space()
    _, spy = run(space, dataclasses.replace(evolution.strategy, generations=0, probability=0.1))
    seeds = space.seeds()
    for number, candidate in enumerate(spy.candidates[3:], start=3):
        seed = Counter(seeds[number % 3].factors)
        assert (Counter(candidate.factors) & seed).total() >= 4  # few of eight genes change


def test_a_mutation_draws_three_genes_of_ten_anew_and_keeps_the_order() -> None:
    """Also those of a parent whose factors are all one, as linear interpolation's are."""
    space = small_space()
    nursery = Nursery(space, np.random.default_rng(0), 0.3)
    for parent in (ramp(space), space.seeds()[0]):
        changed = []
        for _ in range(200):
            child = nursery.mutation([nursery.admit(parent)])
            assert list(violations(space, child)) == []
            same = Counter(child.factors) & Counter(parent.factors)
            changed.append(1 - same.total() / space.pairs)
        assert np.mean(changed) == pytest.approx(0.3, abs=0.05)


def test_a_crossover_takes_every_gene_from_a_parent() -> None:
    space = small_space()
    nursery = Nursery(space, np.random.default_rng(0), 0.3)
    parents = [nursery.admit(ramp(space, 1.2, kept=8)), nursery.admit(space.nearest([1.0] * 8))]
    genes = np.array([parent.factors for parent in parents])
    found = [nursery.crossover(parents) for _ in range(5)]
    assert len(set(found)) == 5
    for child in found:
        assert (np.array(child.factors) == genes).any(axis=0).all()
        assert child.attention_scaling in (1.2, 1.0)
        assert child.kept_initial_positions in (8, 0)


@pytest.mark.parametrize("scale", [2, 4])
def test_a_space_of_few_points_is_searched_to_its_end(scale: int) -> None:
    space = small_space(scale, attention_scaling=1.0, stock_runtimes=True, highest_factor=1.01)
    result, spy = run(space)
    assert result.evaluations == 9  # so many of eight pairs may have the larger factor
    assert len(set(spy.candidates)) == 9
