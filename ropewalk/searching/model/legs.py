"""A search on a real model: from a corpus to a plan, and to how good it is on text unseen before.

A leg is one search at one length. The leg to the target comes first; with `recover`, one at the
length of pretraining follows, and the plan serves short sequences with what that finds. A target
that the model serves already is the second leg alone.

Each leg scores the hand-made methods and searches on one set of documents, chooses among its
finalists and the hand-made methods on a second, and reports on a third. Chosen is the lowest score
among those that retrieve no less than the best hand-made method: where no finalist does, the answer
is a hand-made method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

import numpy as np

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.data.corpora import Document
from ropewalk.errors import InvalidValue, UnknownName, Unsupported
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.randomness import identity
from ropewalk.models.load import LoadedModel
from ropewalk.planning.extension import extend
from ropewalk.run_directory import Journal
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching import strategies
from ropewalk.searching.driver import Point, Progress, Result, search
from ropewalk.searching.model.objectives import (
    RETRIEVED,
    TEXT,
    Kind,
    LocalMeasure,
    Measure,
    ModelObjective,
    loss_of,
)
from ropewalk.searching.model.planted import split_corpus
from ropewalk.searching.model.ranks import Ranks
from ropewalk.searching.space import Space

QUICK, PUBLISHED = 40, 1344
"""Evaluations where no budget is given: for the adaptive strategy, and what Algorithm 1 takes."""
HAND_MADE = ("linear", "ntk", "ntk_mixed", "yarn")
FINALISTS = 4
DOCUMENTS = (12, 16, 20)
"""To search on, to select by, to report on; with eight facts each, 160 answers are reported."""


@dataclass(frozen=True)
class Settings:
    """What is searched for, and what it may cost."""

    target_length: int
    strategy: str = "adaptive"
    objective: Kind = "mixed"
    evaluations: int | None = None
    tokens: int | None = None
    stock_runtimes: bool = True
    recover: bool = False
    documents: tuple[int, int, int] = DOCUMENTS
    seed: int = 0

    def __post_init__(self) -> None:
        strategies.named(self.strategy)
        if self.objective not in get_args(Kind):
            raise UnknownName("objective", self.objective, get_args(Kind))
        for name, count in (("evaluations", self.evaluations), ("tokens", self.tokens)):
            if count is not None and count < 1:
                raise InvalidValue(name, count, "nothing can be scored for that", "allow more")
        if min(self.documents) < 1:
            raise InvalidValue("documents", self.documents, "each set needs one", "give more")

    def to_json(self) -> dict[str, object]:
        return {
            "target_length": self.target_length,
            "strategy": self.strategy,
            "objective": self.objective,
            "evaluations": self.evaluations,
            "tokens": self.tokens,
            "stock_runtimes": self.stock_runtimes,
            "recover": self.recover,
            "documents": list(self.documents),
            "seed": self.seed,
        }


class Score(NamedTuple):
    """Means over documents."""

    score: float
    """What the objective minimises."""
    perplexity: float
    """Of the final tokens of the text."""
    retrieval: float
    """The share of the facts that came back whole."""

    def to_json(self) -> dict[str, float | None]:
        """JSON has no infinity: a schedule that failed has no score."""
        return {key: value if np.isfinite(value) else None for key, value in self._asdict().items()}


class Arm(NamedTuple):
    """A schedule, and what it does on each set of documents."""

    schedule: RotarySchedule
    search: Score
    selection: Score
    reporting: Score

    def to_json(self) -> dict[str, object]:
        return {
            "schedule": self.schedule.to_json(),
            "search": self.search.to_json(),
            "selection": self.selection.to_json(),
            "reporting": self.reporting.to_json(),
        }


@dataclass(frozen=True)
class Leg:
    """What came of a search at one length."""

    length: int
    chosen: Arm
    method: str | None
    """The hand-made method that was chosen, where no finalist was better."""
    baselines: Mapping[str, Arm]
    history: tuple[Point, ...]
    evaluations: float
    tokens: int

    @property
    def best_by_hand(self) -> str:
        """The hand-made method with the best score of those that retrieve the most."""
        arms = self.baselines
        most = max(arm.selection.retrieval for arm in arms.values())
        able = [name for name in arms if arms[name].selection.retrieval == most]
        return min(able, key=lambda name: arms[name].selection.score)

    def gain(self, documents: str) -> float:
        """By how much the chosen plan's score is below that method's on a set of documents.

        More on those of the search than on others is what the search has learnt by heart.
        """
        by_hand = getattr(self.baselines[self.best_by_hand], documents)
        return float(by_hand.score - getattr(self.chosen, documents).score)

    def to_json(self) -> dict[str, object]:
        return {
            "length": self.length,
            "chosen": self.method or "search",
            "best": self.chosen.to_json(),
            "baselines": {name: arm.to_json() for name, arm in self.baselines.items()},
            "evaluations": self.evaluations,
            "tokens": self.tokens,
        }


@dataclass(frozen=True)
class Found:
    """The plan, and the legs that led to it."""

    plan: ContextPlan
    legs: tuple[Leg, ...]
    seconds: float

    def to_json(self) -> dict[str, object]:
        """The first leg, in the form that the command prints."""
        leg = self.legs[0]
        schedule = leg.chosen.schedule
        return {
            "best": {
                "score": leg.chosen.search.score,
                "rescale_factors": schedule.rescale_factors.tolist(),
                "kept_initial_positions": schedule.kept_initial_positions,
                "attention_scaling": schedule.attention_scaling,
            },
            "baselines": {name: arm.reporting.to_json() for name, arm in leg.baselines.items()},
            "held_out": leg.chosen.reporting.to_json(),
            "evaluations": round(sum(leg.evaluations for leg in self.legs), 3),
            "tokens": sum(leg.tokens for leg in self.legs),
            "seconds": round(self.seconds, 3),
        }


class Status(NamedTuple):
    """How far a search is."""

    stage: str
    done: float
    """The share of the stage, as far as it can be told."""
    evaluations: float = 0.0
    tokens: int = 0
    best: float | None = None
    baselines: Mapping[str, float] = {}
    """Scores of the hand-made methods on the same documents as `best`."""


def search_model(
    loaded: LoadedModel,
    documents: Sequence[Document],
    settings: Settings,
    *,
    journal: Callable[[str], Journal | None] = lambda name: None,
    ranks: Ranks | None = None,
    progress: Callable[[Status], None] = lambda status: None,
    notice: Callable[[str], None] = lambda text: None,
) -> Found | None:
    """Search, select and report; None on the ranks that only help.

    `journal` gives a journal by its name, or None to keep nothing: two for each leg, one of the
    search and one of what is measured besides. All ranks are called with the same arguments.
    """
    began = time.monotonic()
    present = loaded.present_plan
    layer = present.extended_layer
    check_target(present.longest(layer), settings)
    legs: list[Leg] = []
    for name, start, length in _legs(present.longest(layer), settings):
        if name == "recovery" and legs:
            start = legs[0].chosen.schedule
        work = _Work(loaded, documents, settings, layer, name, start, length, notice)
        leg = work.over(ranks, journal, progress)
        if leg is not None:
            legs.append(leg)
    if not legs:
        return None
    plan = _plan(present, layer, legs, settings)
    return Found(plan, tuple(legs), time.monotonic() - began)


def hand_made(start: RotarySchedule, length: int) -> dict[str, RotarySchedule]:
    """What a search is compared with: from the plain frequencies where a method does not compose
    on the start."""

    def extended(method: str) -> RotarySchedule:
        try:
            return extend(start, length, method)
        except Unsupported:
            return extend(RotarySchedule.plain(start.geometry), length, method)

    return {method: extended(method) for method in HAND_MADE}


def check_target(start: RotarySchedule, settings: Settings) -> None:
    """Refuse a target before anything is computed for it."""
    for _, leg_start, length in _legs(start, settings):
        _space(leg_start, length, settings)


def _legs(start: RotarySchedule, settings: Settings) -> list[tuple[str, RotarySchedule, int]]:
    """The name of each leg, the schedule that it starts from, and its length."""
    target = settings.target_length
    if settings.recover and target <= start.length:
        return [("recovery", start, target)]
    legs = [("search", start, target)]
    if settings.recover:
        # Starts from what the first leg finds; the target is checked against this one.
        legs.append(("recovery", start, start.geometry.original_length))
    return legs


def _space(start: RotarySchedule, length: int, settings: Settings) -> Space:
    recover = settings.recover and length <= start.length
    return Space(start, length, stock_runtimes=settings.stock_runtimes, recover=recover)


@dataclass(frozen=True)
class _Work:
    """One leg."""

    loaded: LoadedModel
    corpus: Sequence[Document]
    settings: Settings
    layer: str
    name: str
    start: RotarySchedule
    length: int
    notice: Callable[[str], None]

    def over(
        self,
        ranks: Ranks | None,
        journal: Callable[[str], Journal | None],
        progress: Callable[[Status], None],
    ) -> Leg | None:
        """Do it on this process alone, or on all ranks; None where this one only helped."""
        sets = split_corpus(
            self.corpus,
            Encoder(self.loaded.tokenizer),
            self.length,
            self.settings.documents,
            self.settings.seed,
            self.notice,
        )
        in_step = ranks is not None and ranks.per_copy > 1
        local = LocalMeasure(
            self.loaded.model, sets.all, self._plan_of, self.notice, in_step=in_step
        )
        local.prove(next(iter(self._by_hand().values())))
        if ranks is None:
            return self._leg(local, sets.sizes, journal, progress, at_once=1)
        ranks = ranks.apart(self.name)
        if ranks.rank > 0:
            ranks.serve(local.one)
            return None
        shared = ranks.measure(local.one)
        leg = self._leg(shared, sets.sizes, journal, progress, at_once=ranks.size)
        shared.close()
        return leg

    def _plan_of(self, schedule: RotarySchedule) -> ContextPlan:
        return self.loaded.present_plan.with_steps(self.layer, (PlanStep(self.length, schedule),))

    def _leg(
        self,
        measure: Measure,
        sizes: tuple[int, int, int],
        journal: Callable[[str], Journal | None],
        progress: Callable[[Status], None],
        at_once: int,
    ) -> Leg:
        kind = self.settings.objective
        kept = _Kept(measure, journal(f"{self.name}-measured.jsonl"))
        first, second, end = np.cumsum(sizes).tolist()
        documents = {
            "search": range(first),
            "selection": range(first, second),
            "reporting": range(second, end),
        }

        def scores(
            stage: str, place: str, schedules: Mapping[str, RotarySchedule]
        ) -> dict[str, Score]:
            found = {}
            for done, (name, schedule) in enumerate(schedules.items()):
                progress(Status(stage, done / len(schedules)))
                measured = kept.measured(schedule, documents[place])
                found[name] = _score(measured, kind)
            return found

        by_hand = self._by_hand()
        searched = scores("hand-made methods", "search", by_hand)
        beside = {name: score.score for name, score in searched.items()}
        space = _space(self.start, self.length, self.settings)
        objective = ModelObjective(measure, kind, first, self.length)
        result = self._search(
            space,
            objective,
            journal(f"{self.name}.jsonl"),
            at_once,
            lambda status: progress(status._replace(baselines=beside)),
        )
        finalists = {
            f"finalist {rank}": space.schedule(finalist.candidate)
            for rank, finalist in enumerate(result.finalists, start=1)
        }
        pool = {**by_hand, **finalists}
        selected = scores("selecting", "selection", pool)
        chosen = _choice(selected, by_hand)
        reported = scores("reporting", "reporting", {**by_hand, chosen: pool[chosen]})
        if chosen not in searched:
            searched |= scores("reporting", "search", {chosen: pool[chosen]})

        def arm(name: str) -> Arm:
            return Arm(pool[name], searched[name], selected[name], reported[name])

        if chosen in by_hand:
            self.notice(
                f"no finalist was better than {chosen} on held-out documents with as much "
                "retrieval, so it is the plan; allow more evaluations or documents"
            )
        return Leg(
            self.length,
            arm(chosen),
            chosen if chosen in by_hand else None,
            {name: arm(name) for name in by_hand},
            result.history,
            result.evaluations,
            result.tokens,
        )

    def _search(
        self,
        space: Space,
        objective: ModelObjective,
        journal: Journal | None,
        at_once: int,
        progress: Callable[[Status], None],
    ) -> Result:
        """Run the strategy for what it may spend."""
        evaluations, tokens = self.settings.evaluations, self.settings.tokens
        if evaluations is None and tokens is None:
            evaluations = QUICK if self.settings.strategy == "adaptive" else PUBLISHED
        limits = (evaluations, tokens and tokens / (objective.documents * self.length))
        expected = min(limit for limit in limits if limit)

        def report(now: Progress) -> None:
            done = min(1.0, now.evaluations / expected)
            progress(Status("searching", done, now.evaluations, now.tokens, now.score))

        return search(
            space,
            objective,
            strategies.named(self.settings.strategy),
            seed=self.settings.seed,
            evaluations=evaluations,
            tokens=tokens,
            journal=journal,
            at_once=at_once,
            finalists=FINALISTS,
            progress=report,
            notice=self.notice,
        )

    def _by_hand(self) -> dict[str, RotarySchedule]:
        if self.length <= self.start.length:
            plain = RotarySchedule.plain(self.start.geometry)
            return {
                "plain": replace(plain, length=self.length),
                "as it is": replace(self.start, length=self.length),
            }
        return hand_made(self.start, self.length)


class _Kept:
    """What was measured beside a search, one schedule and set of documents a line."""

    def __init__(self, measure: Measure, journal: Journal | None) -> None:
        self._measure, self._journal = measure, journal
        self._known: dict[str, FloatArray] = {}
        for record in journal.records if journal else ():
            values = np.array(record["measured"], dtype=np.float64)  # null becomes NaN
            self._known[str(record["of"])] = values

    def measured(self, schedule: RotarySchedule, documents: Sequence[int]) -> FloatArray:
        key = identity(schedule.to_json(), list(documents))
        if key not in self._known:
            self._known[key] = self._measure([schedule], documents)[0]
            if self._journal:
                rows = self._known[key].tolist()
                rows = [[None if x != x else x for x in row] for row in rows]
                self._journal.append([{"of": key, "measured": rows}])
        return self._known[key]


def _score(measured: FloatArray, kind: Kind) -> Score:
    """The means of [documents, 3]; infinite where the schedule failed."""
    if not np.isfinite(measured).all():
        return Score(np.inf, np.inf, 0.0)
    loss = float(loss_of(measured, kind).mean())
    text = float(measured[:, TEXT].mean())
    return Score(loss, float(np.exp(text)), float(measured[:, RETRIEVED].mean()))


def _choice(scores: Mapping[str, Score], by_hand: Iterable[str]) -> str:
    """The lowest score among those that retrieve no less than the best by hand."""
    most = max(scores[name].retrieval for name in by_hand)
    able = [name for name, score in scores.items() if score.retrieval >= most]
    return min(able, key=lambda name: scores[name].score)


def _plan(present: ContextPlan, layer: str, legs: Sequence[Leg], settings: Settings) -> ContextPlan:
    """What the legs found, each for sequences up to its length, and the present beyond them."""
    steps = sorted(
        (PlanStep(leg.length, leg.chosen.schedule) for leg in legs),
        key=lambda step: step.up_to_length,
    )
    reached = steps[-1].up_to_length
    steps += [step for step in present.steps(layer) if step.up_to_length > reached]
    plan = present.with_steps(layer, tuple(steps))
    methods = legs[0].method or "search"
    provenance = {
        "methods": methods,
        "strategy": settings.strategy,
        "objective": settings.objective,
        "seed": str(settings.seed),
    }
    return ContextPlan(plan.model, plan.schedules, provenance)
