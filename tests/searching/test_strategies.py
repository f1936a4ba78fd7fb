"""What every strategy promises. A new one joins by its file."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from ropewalk.errors import UnknownName
from ropewalk.scaling import log_growth, rebuild, yarn
from ropewalk.schedule import Recipe, RotarySchedule
from ropewalk.searching.driver import Outcome, Requests, ScoreRequest, Strategy, search
from ropewalk.searching.space import Candidate, Space
from ropewalk.searching.strategies import named
from ropewalk.searching.strategies.yarn import candidates
from tests.examples import examples
from tests.searching.problems import (
    EVERY_STRATEGY,
    Bowl,
    Capricious,
    ramp,
    small_space,
    spaces,
    violations,
)

every_strategy = pytest.mark.parametrize("name", EVERY_STRATEGY)


class Spy:
    """A strategy that is watched."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self.requests: list[ScoreRequest] = []

    def __call__(
        self, space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
    ) -> Requests:
        requests = self._strategy(space, documents, rng, evaluations)
        try:
            request = next(requests)
            while True:
                self.requests.append(request)
                request = requests.send((yield request))
        except StopIteration:
            pass

    @property
    def candidates(self) -> list[Candidate]:
        return [candidate for request in self.requests for candidate in request.candidates]


@every_strategy
@given(space=spaces(), seed=st.integers(0, 2**16))
@examples(8, suppress_health_check=[HealthCheck.too_slow])
def test_no_candidate_breaks_a_constraint(name: str, space: Space, seed: int) -> None:
    """Even where the scores lead it anywhere, and some are no numbers."""
    spy = Spy(EVERY_STRATEGY[name])
    # The adaptive strategy takes time with the square of its looks, and 40 hold all of its moves.
    evaluations = 40 if name == "adaptive" else 100
    result = search(space, Capricious(seed), spy, seed=seed, evaluations=evaluations)
    scores = [point.score for point in result.history]
    assert scores == sorted(scores, reverse=True)
    assert result.evaluations <= evaluations
    for candidate in spy.candidates:
        assert list(violations(space, candidate)) == []
    schedule = space.schedule(spy.candidates[-1])
    # n̂ is no parameter of a method, so a recipe leads to all but it.
    rebuilt = rebuild(schedule.recipe, schedule.geometry)
    kept = schedule.kept_initial_positions
    assert replace(rebuilt, kept_initial_positions=kept) == schedule
    assert kept == spy.candidates[-1].kept_initial_positions


@pytest.mark.parametrize("name", sorted({*EVERY_STRATEGY} - {"yarn"}))
def test_it_begins_with_the_methods_made_by_hand(name: str) -> None:
    space = small_space()
    spy = Spy(EVERY_STRATEGY[name])
    search(space, Bowl(space, ramp(space)), spy, seed=1, evaluations=8)
    assert tuple(spy.requests[0].candidates[:3]) == space.seeds()
    everything = set(range(Bowl.documents))
    if name == "adaptive":  # a race: all begin, and one of them sees all documents
        whole = next(r for r in spy.requests if set(r.documents) == everything)
        assert set(whole.candidates) <= set(space.hand_designed())
    else:
        assert set(spy.requests[0].documents) == everything


def distance_left(name: str, evaluations: int, **rules: float | bool) -> float:
    """How much of the way from the best seed to the optimum is left, in score."""
    space = small_space(4, **rules)
    optimum = ramp(space, kept=0 if rules.get("stock_runtimes") else 8)
    bowl = Bowl(space, optimum)
    floor = bowl.score(space.schedule(optimum))
    first = min(bowl.score(space.schedule(seed)) for seed in space.hand_designed())
    found = search(space, bowl, EVERY_STRATEGY[name], seed=3, evaluations=evaluations)
    best, score = found.finalists[0]
    assert score == pytest.approx(bowl.score(space.schedule(best)))
    return (score - floor) / (first - floor)


@pytest.mark.parametrize(
    ("name", "evaluations", "left"),
    [
        ("evolution", 1344, 0.1),
        ("covariance", 1344, 0.01),
        ("random", 1344, 0.6),
        ("adaptive", 134, 0.1),
    ],
)
def test_it_converges_on_a_known_optimum(name: str, evaluations: int, left: float) -> None:
    assert distance_left(name, evaluations, stock_runtimes=True) < left


@pytest.mark.parametrize(
    ("name", "evaluations", "left"),
    [("evolution", 1344, 0.2), pytest.param("adaptive", 134, 0.2, marks=pytest.mark.slow)],
)
def test_it_finds_how_many_positions_to_keep(name: str, evaluations: int, left: float) -> None:
    assert distance_left(name, evaluations) < left


def run(name: str, at_once: int = 1, seed: int = 5) -> Outcome:
    space = small_space()
    bowl = Bowl(space, ramp(space))
    strategy = EVERY_STRATEGY[name]
    return search(space, bowl, strategy, seed=seed, evaluations=60, at_once=at_once)


once = cache(run)


@every_strategy
def test_a_seed_decides_all(name: str) -> None:
    assert run(name) == once(name)
    assert once(name) != run(name, seed=6)


@every_strategy
def test_how_many_are_scored_side_by_side_changes_nothing(name: str) -> None:
    assert run(name, at_once=7) == once(name)


@every_strategy
def test_nothing_is_scored_twice(name: str) -> None:
    space = small_space()
    bowl = Bowl(space, ramp(space))
    result = search(space, bowl, EVERY_STRATEGY[name], seed=2, evaluations=60)
    assert len(set(bowl.asked)) == len(bowl.asked)
    assert result.tokens == len(bowl.asked) * bowl.tokens_per_document
    assert result.evaluations * bowl.documents == len(bowl.asked)


@every_strategy
def test_a_search_that_fails_everywhere_but_once_survives(name: str) -> None:
    space = small_space()
    first = next(iter(candidates(space))) if name == "yarn" else space.seeds()[0]
    only = space.schedule(first)
    bowl = Bowl(space, ramp(space))

    class Failing(Bowl):
        def losses(self, schedules, documents):  # type: ignore[no-untyped-def]
            losses = bowl.losses(schedules, documents)
            losses[[schedule != only for schedule in schedules], -1] = np.nan
            return losses

    notices: list[str] = []
    result = search(
        space,
        Failing(space, ramp(space)),
        EVERY_STRATEGY[name],
        seed=2,
        evaluations=60,
        notice=notices.append,
    )
    assert [finalist.candidate for finalist in result.finalists] == [first]
    assert len(notices) > 30


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown strategy 'adaptiv'.*adaptive"):
        named("adaptiv")


def test_a_search_over_yarns_parameters_finds_those_of_a_known_optimum() -> None:
    space = small_space()
    own = yarn.schedule(space.start, 512, beta_fast=8.0, beta_slow=2.0, attention_factor=1.07)
    bowl = Bowl(space, space.of_method(own), spread=0.02)
    found = search(space, bowl, EVERY_STRATEGY["yarn"], seed=3, evaluations=40)
    as_published = bowl.score(yarn.schedule(space.start, 512))
    assert found.finalists[0].score - bowl.score(own) < 0.1 * (as_published - bowl.score(own))
    for finalist in found.finalists:
        # YaRN itself, to the last bit: no runtime needs a list of factors.
        schedule = space.schedule(finalist.candidate)
        [recipe] = schedule.recipe
        assert recipe.method == "yarn"
        assert yarn.schedule(space.start, 512, **_given(recipe)) == schedule


def _given(recipe: Recipe) -> dict[str, Any]:
    return {key: value for key, value in recipe.parameters.items() if key != "target_length"}


def test_yarn_as_published_is_the_first_of_its_candidates_and_none_comes_twice() -> None:
    space = small_space()
    every = [space.schedule(candidate) for candidate in candidates(space)]
    assert every[0] == yarn.schedule(space.start, 512, attention_factor=log_growth(4))
    alike = {(each.rescale_factors.tobytes(), each.attention_scaling) for each in every}
    assert len(alike) == len(every) <= 96


def test_where_yarn_does_not_compose_the_adaptive_search_takes_its_place() -> None:
    geometry = small_space().start.geometry
    start = yarn.schedule(RotarySchedule.plain(geometry), 256)
    for space in (Space(start, 512), Space(start, 128, recover=True)):
        assert not candidates(space)
        spies = [Spy(EVERY_STRATEGY[name]) for name in ("yarn", "adaptive")]
        for spy in spies:
            search(space, Capricious(1), spy, seed=1, evaluations=8)
        assert spies[0].requests == spies[1].requests
