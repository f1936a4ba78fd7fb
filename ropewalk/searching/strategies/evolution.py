"""LongRoPE's search as published (Ding et al. 2024, Algorithm 1), each open choice written down.

64 individuals, 40 generations of 16 mutations and 16 crossovers, the best 32 of all so far as the
parents; beyond 512k half as many of all but the parents. n̂, and m where it is searched, are genes
beside the factors. What the paper leaves open, and how it is read here:

- *The rest of the first population* are mutations of the three seeds, taken in turn.
- *A mutation* draws each gene anew with probability p, uniformly from its whole range, and then
  sorts the factors, as the constraint asks: about 19 of 64 change. (The public code draws between
  the two neighbours, and since most neighbours of a seed are equal, changes about one.)
- *A crossover* takes two different parents, and each gene from the worse one with probability p,
  from the better one otherwise; a child that breaks the order is drawn again from other parents,
  at most 100 times, after which a mutation takes its place.
- *Nobody is scored twice*: a child that is known already is drawn again, at most 100 times.
- *The last population is scored*: read literally, what the 40th generation makes is never looked
  at (64 + 39 · 32 = 1,312). The public code scores it, and so it is 64 + 40 · 32 = 1,344.
- *Parents* are scored once, and ties keep the older one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ropewalk.schedule import FloatArray
from ropewalk.searching.driver import Requests, ScoreRequest
from ropewalk.searching.space import STEPS_PER_UNIT, Candidate, Space

HALVED_BEYOND = 512 * 1024
TRIES = 100


@dataclass(frozen=True)
class Evolution:
    """Algorithm 1 with its sizes."""

    population: int = 64
    mutations: int = 16
    crossovers: int = 16
    parents: int = 32
    generations: int = 40
    probability: float = 0.3

    def __call__(
        self, space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
    ) -> Requests:
        halved = 2 if space.target_length > HALVED_BEYOND else 1
        nursery = Nursery(space, rng, self.probability)
        everyone = tuple(range(documents))

        seeds = space.seeds()
        brood = [nursery.admit(seed) for seed in seeds]
        while len(brood) < self.population // halved:
            brood.append(nursery.mutation([seeds[len(brood) % len(seeds)]]))
        top: dict[Candidate, float] = {}
        before = 0
        for generation in range(self.generations + 1):
            if generation:
                brood = [nursery.mutation([*top]) for _ in range(self.mutations // halved)]
                brood += [nursery.crossover([*top]) for _ in range(self.crossovers // halved)]
                if nursery.known == before:  # the space is that small
                    return
            before = nursery.known
            losses: FloatArray = yield ScoreRequest(tuple(brood), everyone)
            top |= zip(brood, losses.mean(axis=1).tolist(), strict=True)
            top = dict(sorted(top.items(), key=lambda scored: scored[1])[: self.parents])


class Nursery:
    """Makes individuals, none of them twice as long as there are others."""

    def __init__(self, space: Space, rng: np.random.Generator, probability: float) -> None:
        self._space, self._rng, self._probability = space, rng, probability
        self._known: set[Candidate] = set()
        self._lowest = np.rint(space.lowest * STEPS_PER_UNIT).astype(int)
        self._highest = round(space.highest * STEPS_PER_UNIT)

    @property
    def known(self) -> int:
        """The number of different individuals so far."""
        return len(self._known)

    def admit(self, candidate: Candidate) -> Candidate:
        self._known.add(candidate)
        return candidate

    def mutation(self, parents: list[Candidate]) -> Candidate:
        """A new candidate near one of the parents."""
        for _ in range(TRIES):
            child = self._mutated(parents[self._rng.integers(len(parents))])
            if child not in self._known:
                return self.admit(child)
        return child

    def crossover(self, parents: list[Candidate]) -> Candidate:
        """A new candidate between two of the parents, who are sorted, the best first."""
        for _ in range(TRIES if len(parents) > 1 else 0):
            better, worse = sorted(self._rng.choice(len(parents), 2, replace=False).tolist())
            child = self._crossed(parents[better], parents[worse])
            if child not in self._known and (np.diff(child.factors) >= 0).all():
                return self.admit(child)
        return self.mutation(parents)

    def _mutated(self, parent: Candidate) -> Candidate:
        steps = self._space.steps(parent)
        chosen = self._chosen(len(steps))
        drawn = self._rng.integers(self._lowest, self._highest, endpoint=True)
        steps = np.sort(np.where(chosen[:-2], drawn, steps))
        kept, scaling = parent.kept_initial_positions, parent.attention_scaling
        if chosen[-2]:
            kept = int(self._rng.choice(self._space.kept_positions))
        if chosen[-1]:
            scaling = float(self._rng.choice(self._space.scalings))
        return self._space.at(steps, scaling, kept)

    def _crossed(self, better: Candidate, worse: Candidate) -> Candidate:
        *chosen, kept, scaling = self._chosen(len(better.factors)).tolist()
        return Candidate(
            tuple(np.where(chosen, worse.factors, better.factors).tolist()),
            (worse if kept else better).kept_initial_positions,
            (worse if scaling else better).attention_scaling,
        )

    def _chosen(self, pairs: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """True for the genes that change: one a pair, then n̂, then m."""
        return self._rng.random(pairs + 2) < self._probability


strategy = Evolution()
