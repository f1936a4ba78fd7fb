"""A search on a real model: from a corpus to a plan, and to how good it is on text unseen before.

A leg is one search at one length. The leg to the target comes first; with `recover`, one at the
length of pretraining follows, and the plan serves short sequences with what that finds. A target
that the model serves already is the second leg alone.

Each leg scores the hand-designed methods and searches on one set of documents, chooses among its
finalists and the hand-designed methods on a second by the rule of evaluation/select.py, and reports
on a third. Where no finalist is shown to be better, the answer is a hand-designed method.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.costs.here import check_memory
from ropewalk.data.corpora import Document
from ropewalk.errors import InvalidValue, RopewalkError
from ropewalk.evaluation.chat import Chat
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Planted, split_corpus, text_of
from ropewalk.evaluation.select import Losses, Paired, choose, paired, remaining
from ropewalk.evaluation.statistics import FEWEST
from ropewalk.lengths import format_length
from ropewalk.models.load import LoadedModel
from ropewalk.planning.hand_designed import hand_designed
from ropewalk.progress import Notice, Progress, Status, log_notice, share, silent
from ropewalk.registered import told
from ropewalk.run_directory import Journal
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching import driver as searching
from ropewalk.searching import strategies
from ropewalk.searching.model.forwards import FINALISTS, evaluations_of
from ropewalk.searching.model.objectives import (
    ANSWERS,
    RETRIEVED,
    TEXT,
    Kept,
    LocalMeasure,
    Measure,
    ModelObjective,
    loss_of,
)
from ropewalk.searching.model.ranks import SearchRanks
from ropewalk.searching.model.results import (
    PRESENT,
    SEARCHED,
    Arm,
    Found,
    Leg,
    Score,
    schedule_in_words,
)
from ropewalk.searching.model.settings import SearchSettings, check_target, legs_of, space_of
from ropewalk.searching.model.shortened import shortened
from ropewalk.searching.space import STEPS_PER_UNIT, Space
from ropewalk.untrusted import parse_json

ROUNDED = 1.5 / STEPS_PER_UNIT
"""The largest change of a schedule's factors, as a ratio, when a search rounds them."""
WITHIN = "original length"
"""The stage of measuring there, in progress."""
FIRST_ROUND = 6
"""Selection documents that all schedules are measured on, before the clearly worse drop out."""


def search_model(
    loaded: LoadedModel,
    documents: Sequence[Document],
    settings: SearchSettings,
    *,
    chat: Chat | None = None,
    journal: Callable[[str], Journal | None] = lambda name: None,
    ranks: SearchRanks | None = None,
    progress: Progress = silent,
    notice: Notice = log_notice,
) -> Found:
    """Search, select and report.

    `chat` is the template that questions go through. `journal` gives a journal by its name, or None
    to keep nothing: two for each leg, one of the search and one of what is measured besides. All
    ranks are called with the same arguments, and all return the same.
    """
    present = loaded.present_plan
    layer = present.extended_layer
    check_target(present.longest(layer), settings)
    geometry = present.longest(layer).geometry
    if geometry.resting_pairs:
        notice(
            f"{geometry.resting_pairs} of {geometry.pairs} rotary pairs do not rotate (frequency "
            "0), and no stock runtime can load factors for the others alone: a searched plan can "
            "only be installed with ropewalk; ntk, base_change and linear can also be exported"
        )
    _check_memory(loaded, settings, ranks)
    legs: list[Leg] = []
    for name, start, length in legs_of(present.longest(layer), settings):
        if name == "recovery" and legs:
            start = legs[0].best.schedule
        work = _Work(loaded, documents, settings, layer, name, start, length, notice, chat)
        leg = work.over(ranks, journal, progress)
        if leg is not None:
            legs.append(leg)
    helps = ranks is not None and ranks.rank > 0
    found = None if helps else Found(_plan(present, layer, legs, settings), tuple(legs))
    if ranks is None:
        assert found is not None
        return found
    text = ranks.share(None if found is None else json.dumps(found.to_json()))
    return found or Found.from_json(parse_json(text, source="rank 0"))


def check_search(
    loaded: LoadedModel,
    documents: Sequence[Document],
    settings: SearchSettings,
    ranks: SearchRanks | None = None,
    chat: Chat | None = None,
) -> None:
    """Refuse a target, a corpus too short for it, or a budget without room for one evaluation,
    before anything is computed or kept."""
    start = loaded.present_plan.longest(loaded.present_plan.extended_layer)
    check_target(start, settings)
    _check_memory(loaded, settings, ranks)
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary).with_chat(chat)
    for _, own, length in legs_of(start, settings):
        sets = split_corpus(documents, encoder, length, settings.sizes, settings.seed)
        least = len(sets.search) * length
        if settings.limited and length > own.geometry.original_length:
            least += len(sets.search) * own.geometry.original_length
        if settings.tokens is not None and settings.tokens < least:
            raise InvalidValue(
                "budget",
                f"{settings.tokens} tokens",
                f"one evaluation at {format_length(length)} takes {least:,}, over "
                f"{len(sets.search)} documents",
                "allow at least that",
            )


def _check_memory(loaded: LoadedModel, settings: SearchSettings, ranks: SearchRanks | None) -> None:
    heads = ranks is not None and ranks.by_heads
    parts = ranks.per_copy if ranks is not None and heads else 1
    check_memory(loaded.model, settings.target_length, "to", in_chunks=heads, ranks=parts)


@dataclass(frozen=True)
class _Work:
    """One leg."""

    loaded: LoadedModel
    corpus: Sequence[Document]
    settings: SearchSettings
    layer: str
    name: str
    start: RotarySchedule
    length: int
    notice: Callable[[str], None]
    chat: Chat | None

    def over(
        self,
        ranks: SearchRanks | None,
        journal: Callable[[str], Journal | None],
        progress: Progress,
    ) -> Leg | None:
        """Do it on this process alone, or on all ranks; None if this one only helped."""
        sets = split_corpus(
            self.corpus,
            self._encoder,
            self.length,
            self.settings.sizes,
            self.settings.seed,
            self.notice,
            plain_search=self.settings.as_published,
        )
        documents = (
            *sets.all,
            *self._shortened((*sets.reporting, *sets.selection, *sets.search)),
        )
        sources = [document.source for document in documents]
        if len(sets.selection) < FEWEST:
            self.notice(
                f"{len(sets.selection)} documents to select by are too few to show that a searched "
                "schedule is better, so the plan will follow a hand-designed method; at least "
                f"{FEWEST} are needed: give more text (`corpus`) or more `documents`"
            )
        in_step = ranks is not None and ranks.per_copy > 1
        local = LocalMeasure(
            *(self.loaded.model, documents, self._plan_of, self.notice),
            in_step=in_step,
            in_chunks=ranks is not None and ranks.by_heads,
        )
        local.prove(next(iter(self._by_hand().values())))
        if ranks is None:
            return self._leg(local, sets.sizes, sources, journal, progress, at_once=1)
        ranks = ranks.apart(self.name)
        if ranks.rank > 0:
            ranks.serve(local.one)
            return None
        shared = ranks.measure(local.one)
        leg = self._leg(shared, sets.sizes, sources, journal, progress, ranks.size)
        shared.close()
        return leg

    def _shortened(self, documents: Sequence[Planted]) -> tuple[Planted, ...]:
        """The documents cut to the original length; none if this leg is about that length."""
        original = self.start.geometry.original_length
        if self.length <= original:
            return ()
        return shortened(documents, self.corpus, self._encoder, original, self.settings.seed)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.loaded.tokenizer, self.loaded.vocabulary).with_chat(self.chat)

    def _plan_of(self, schedule: RotarySchedule) -> ContextPlan:
        return self.loaded.present_plan.with_steps(self.layer, (PlanStep(self.length, schedule),))

    def _leg(
        self,
        measure: Measure,
        sizes: tuple[int, int, int],
        sources: Sequence[str],
        journal: Callable[[str], Journal | None],
        progress: Progress,
        at_once: int,
    ) -> Leg:
        kind = self.settings.objective
        kept = Kept(measure, journal(f"{self.name}-measured.jsonl"), at_once)
        first, second, end = np.cumsum(sizes).tolist()
        documents = {
            "search": range(first),
            "selection": range(first, second),
            "reporting": range(second, end),
        }
        short = range(end, min(len(sources), end + sizes[2]))
        short_to_select = range(short.stop, min(len(sources), short.stop + sizes[1]))
        short_to_search = range(short_to_select.stop, len(sources)) if self.settings.limited else ()

        def measured(
            stage: str, some: Sequence[int], schedules: Mapping[str, RotarySchedule]
        ) -> dict[str, FloatArray]:
            found = {}
            for done, (name, schedule) in enumerate(schedules.items() if some else ()):
                part = share(progress, stage, done / len(schedules), 1 / len(schedules))
                found[name] = kept.measured(schedule, some, part)
            return found

        by_hand = self._by_hand()
        searched = measured("hand-designed methods", documents["search"], by_hand)
        beside = {name: _score(own, kind).score for name, own in searched.items()}
        for name, there in measured(WITHIN, short_to_search, by_hand).items():
            text = there[:, TEXT].mean()
            beside[name] = beside[name] + float(text) if np.isfinite(text) else np.inf
        space = space_of(self.start, self.length, self.settings)
        objective = ModelObjective(measure, kind, first, self.length)
        if short_to_search:
            tokens = self.length + self.start.geometry.original_length
            objective = replace(objective, tokens_per_document=tokens, short=short_to_search.start)
        result = self._search(
            space,
            objective,
            journal(f"{self.name}.jsonl"),
            at_once,
            progress,
            min(beside.items(), key=lambda item: item[1]),
        )
        if not result.finalists:
            if not np.isfinite([*beside.values()]).any():
                raise RopewalkError(
                    f"the model has no finite score at {self.length:,} tokens under any schedule; "
                    "try float32 (`dtype`), and check that the unmodified model works"
                )
            if evaluations_of(self.settings) != 0:
                self.notice("the search's budget ended before it had scored a schedule")
        finalists = {
            f"finalist {rank}": space.schedule(finalist.candidate)
            for rank, finalist in enumerate(result.finalists, start=1)
        }
        at_bounds = {
            name: space.bounds_met(finalist.candidate)
            for name, finalist in zip(finalists, result.finalists, strict=True)
        }
        pool = {**by_hand, **finalists}
        selected, losses = self._select(
            kept, pool, by_hand, documents["selection"], sources, progress
        )
        # No costs if a schedule of its own serves the original length, or nothing limits them.
        some = short_to_select if self.settings.limited else ()
        costs = _costs(
            measured(WITHIN, some, {PRESENT: self.start}),
            measured(WITHIN, some, {name: pool[name] for name in losses}),
            [text_of(sources[i]) for i in some],
        )
        choice = choose(losses, by_hand, len(finalists), costs, self.settings.short_limit or 0)
        chosen = choice.chosen
        own_schedule = {chosen: pool[chosen]}
        reported = measured("reporting", documents["reporting"], by_hand | own_schedule)
        if chosen not in searched:
            searched |= measured("reporting", documents["search"], own_schedule)

        own_name = chosen if chosen in by_hand else SEARCHED
        at_original_length = measured(
            WITHIN,
            short,
            {
                PRESENT: self.start,
                choice.best_hand_designed: pool[choice.best_hand_designed],
                own_name: pool[chosen],
            },
        )

        def arm(name: str) -> Arm:
            measured = (searched[name], selected[name], reported[name])
            return Arm(pool[name], *(_score(own, kind) for own in measured))

        if chosen in by_hand and result.finalists:
            self.notice(
                f"search did not beat {chosen} on held-out documents, so {chosen} is used; allow "
                "more evaluations or documents"
            )
        texts = [text_of(sources[i]) for i in documents["reporting"]]
        baseline = _losses(reported[choice.best_hand_designed], kind, texts)
        own = _losses(reported[chosen], kind, texts)
        compared = chosen not in by_hand and not own.failed and not baseline.failed
        short_texts = [text_of(sources[i]) for i in short]
        short_losses = {n: _losses(m, kind, short_texts) for n, m in at_original_length.items()}
        return Leg(
            length=self.length,
            chosen=own_name,
            best_hand_designed=choice.best_hand_designed,
            best=arm(chosen),
            baselines={name: arm(name) for name in by_hand},
            selection=choice.comparison,
            selection_text=choice.text,
            selection_answers=choice.answers,
            best_searched=None
            if choice.best_searched is None
            else _described(pool[choice.best_searched], by_hand),
            held_out=paired(own.objective, baseline.objective, texts) if compared else None,
            remaining=tuple(name for name in by_hand if name in losses),
            sources={
                place: tuple(sources[i] for i in numbers) for place, numbers in documents.items()
            },
            history=result.history,
            evaluations=result.evaluations,
            tokens=result.tokens,
            at_bounds=at_bounds.get(chosen, ()),
            at_original_length={n: _score(own, kind) for n, own in at_original_length.items()},
            cost_at_original_length=_less(short_losses.get(own_name), short_losses.get(PRESENT)),
            short_costs={
                own_name if name == chosen else name: cost
                for name, cost in costs.items()
                if name in by_hand or name == chosen
            },
            short_limit=self.settings.short_limit,
            by_objective=beside,
        )

    def _select(
        self,
        kept: Kept,
        pool: Mapping[str, RotarySchedule],
        by_hand: Mapping[str, RotarySchedule],
        documents: Sequence[int],
        sources: Sequence[str],
        progress: Progress,
    ) -> tuple[dict[str, FloatArray], dict[str, Losses]]:
        """Measure all schedules on the first documents, and those that may be best on the others.

        Also returns the losses of what may be best after all of them.
        """
        kind, left, done = self.settings.objective, list(pool), 0
        ends = [min(len(documents), FIRST_ROUND)]
        while ends[-1] < len(documents):
            ends.append(min(len(documents), 2 * ends[-1]))
        measured: dict[str, FloatArray] = {}
        for until in ends:
            behind, size = done / len(documents), (until - done) / len(documents) / len(left)
            for number, name in enumerate(left):
                part = share(progress, "selecting", behind + number * size, size)
                more = kept.measured(pool[name], documents[done:until], part)
                measured[name] = np.concatenate([measured[name], more]) if done else more
            done = until
            texts = [text_of(sources[i]) for i in documents[:done]]
            losses = {name: _losses(measured[name], kind, texts) for name in left}
            left = remaining(losses, by_hand, len(pool) * len(ends))
        return measured, {name: losses[name] for name in left}

    def _search(
        self,
        space: Space,
        objective: ModelObjective,
        journal: Journal | None,
        at_once: int,
        progress: Progress,
        baseline: tuple[str, float],
    ) -> searching.Result:
        """Run the strategy within its budget."""
        evaluations, tokens = evaluations_of(self.settings), self.settings.tokens
        if evaluations == 0:  # a race of the hand-designed methods alone
            return searching.Result((), (), 0.0, 0)
        each = objective.documents * objective.tokens_per_document
        limits = (evaluations, tokens and tokens / each)
        expected = min(limit for limit in limits if limit)

        def report(now: searching.Progress) -> None:
            done = min(1.0, now.evaluations / expected)
            detail = (
                f"best {now.score:.3f} ({baseline[0]} {baseline[1]:.3f})  "
                f"{now.evaluations:,.0f} evaluations  {now.tokens / 1000:,.0f}k tokens"
            )
            progress(Status("searching", done, detail))

        return searching.search(
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
                PRESENT: replace(self.start, length=self.length),
            }
        return hand_designed(self.start, self.length)


def _costs(
    present: Mapping[str, FloatArray], measured: Mapping[str, FloatArray], texts: Sequence[str]
) -> dict[str, Paired]:
    """The cost in text of each schedule that did not fail, over the present one."""
    losses = {name: own[:, TEXT] for name, own in measured.items()}
    return {
        name: paired(own, present[PRESENT][:, TEXT], texts)
        for name, own in losses.items()
        if np.isfinite(own).all()
    }


def _score(measured: FloatArray, kind: str) -> Score:
    """The means of [documents, 3]; infinite if the schedule failed."""
    if not np.isfinite(measured).all():
        return Score(np.inf, np.inf, 0.0, len(measured))
    loss = float(loss_of(measured, kind).mean())
    text = float(measured[:, TEXT].mean())
    retrieved = float(measured[:, RETRIEVED].mean())
    return Score(loss, float(np.exp(text)), retrieved, len(measured))


def _losses(measured: FloatArray, kind: str, texts: Sequence[str]) -> Losses:
    """The losses of [documents, 3]; infinite if the schedule failed."""
    finite = np.where(np.isfinite(measured), measured, np.inf)
    return Losses(loss_of(finite, kind), finite[:, TEXT], finite[:, ANSWERS], tuple(texts))


def _described(searched: RotarySchedule, by_hand: Mapping[str, RotarySchedule]) -> str:
    """A searched schedule by the hand-designed one that it is, up to the rounding of a search."""

    def apart(known: RotarySchedule) -> float:
        factors = np.log(searched.rescale_factors / known.rescale_factors)
        scaling = np.log(searched.attention_scaling / known.attention_scaling)
        return float(max(np.abs(factors).max(), abs(scaling)))

    name, nearest = min(((n, apart(s)) for n, s in by_hand.items()), key=lambda each: each[1])
    if nearest >= ROUNDED or searched.recipe[-1].method != "longrope":
        return schedule_in_words(searched)
    return f"{name}, rounded to the search grid"


def _less(first: Losses | None, second: Losses | None) -> Paired | None:
    """The difference on the same documents; None if there are none, or the model failed."""
    if first is None or second is None or first.failed or second.failed:
        return None
    return paired(first.objective, second.objective, first.texts)


def _plan(
    present: ContextPlan, layer: str, legs: Sequence[Leg], settings: SearchSettings
) -> ContextPlan:
    """The plan of the legs' schedules, each up to its length, and of the present beyond them."""
    steps = sorted(
        (PlanStep(leg.length, leg.best.schedule) for leg in legs),
        key=lambda step: step.up_to_length,
    )
    reached = steps[-1].up_to_length
    steps += [step for step in present.steps(layer) if step.up_to_length > reached]
    plan = present.with_steps(layer, tuple(steps))
    methods = legs[0].chosen
    provenance = {
        "methods": methods,
        **({"as_published": "yes"} if settings.as_published else {}),
        "strategy": settings.strategy,
        "objective": settings.objective,
        **told("objective", settings.objective),
        "seed": str(settings.seed),
    }
    return ContextPlan(plan.model, plan.schedules, provenance)
