"""A search on a real model: from a corpus to a plan, and to how good it is on text unseen before.

A leg is one search at one length. The leg to the target comes first; with `recover`, one at the
length of pretraining follows (as published, another at twice that), and the plan serves short
sequences with what it finds. A target that the model serves already is the second leg alone.

Each leg scores the hand-designed methods and searches on one set of documents, chooses on a second
(choose.py) and reports on a third (report.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.data.corpora import Document
from ropewalk.errors import InvalidValue, RopewalkError
from ropewalk.evaluation.chat import Chat
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import split_corpus
from ropewalk.evaluation.statistics import FEWEST
from ropewalk.lengths import format_length
from ropewalk.models.load import LoadedModel
from ropewalk.planning.extension import hand_designed
from ropewalk.progress import Notice, Progress, Status, log_notice, silent
from ropewalk.registered import code_of
from ropewalk.run_directory import Journal
from ropewalk.schedule import RotarySchedule
from ropewalk.searching import driver, strategies
from ropewalk.searching.model.choose import WITHIN, Candidates, ScheduleReader, select
from ropewalk.searching.model.documents import SearchDocuments
from ropewalk.searching.model.forwards import FINALISTS, evaluations_of
from ropewalk.searching.model.measure import JournaledMeasure, Measure
from ropewalk.searching.model.objectives import ModelObjective
from ropewalk.searching.model.ranks import measuring
from ropewalk.searching.model.readers import PlantedReader, reader_of
from ropewalk.searching.model.report import report
from ropewalk.searching.model.results import PRESENT, Leg, SearchResult
from ropewalk.searching.model.settings import SearchSettings, legs_of, space_of
from ropewalk.searching.space import Space
from ropewalk.torchrun import Ranks

Journals = Callable[[str], Journal | None]
"""A journal by its name, or None to keep nothing."""


def search_model(
    model: LoadedModel | PlantedReader,
    documents: Sequence[Document],
    settings: SearchSettings,
    *,
    chat: Chat | None = None,
    journal: Journals = lambda name: None,
    ranks: Ranks | None = None,
    progress: Progress = silent,
    notice: Notice = log_notice,
) -> SearchResult:
    """Search, select and report, on a loaded model or whoever else reads.

    `chat` is the template that questions go through. A leg has two journals, one of the search and
    one of what is measured besides. All ranks are called with the same arguments, and all return
    the same.
    """
    reader, ranks = reader_of(model), ranks or Ranks()
    present = reader.present_plan
    layer = present.extended_layer
    geometry = present.longest(layer).geometry
    if geometry.resting_pairs:
        notice(
            f"{geometry.resting_pairs} of {geometry.pairs} rotary pairs do not rotate (frequency "
            "0), and no stock runtime can load factors for the others alone: a searched plan can "
            "only be installed with ropewalk; ntk, base_change and linear can also be exported"
        )
    encoder = reader.encoder.with_chat(chat)
    legs: list[Leg] = []
    for name, start, length in legs_of(present.longest(layer), settings):
        if legs:  # recovery
            start = legs[0].best.schedule
        search = _LegSearch(
            reader=reader,
            corpus=documents,
            encoder=encoder,
            settings=settings,
            layer=layer,
            name=name,
            start=start,
            length=length,
            notice=notice,
        )
        leg = search.over(ranks, journal, progress)
        if leg is not None:
            legs.append(leg)
    # The first rank alone has the results, and hands them to the others.
    if ranks.rank > 0:
        return SearchResult.from_json(ranks.broadcast(None))
    result = SearchResult(_plan(present, layer, legs, settings), tuple(legs))
    ranks.broadcast(result.to_json())
    return result


def check_search(
    model: LoadedModel | PlantedReader,
    documents: Sequence[Document],
    settings: SearchSettings,
    ranks: Ranks | None = None,
    chat: Chat | None = None,
) -> None:
    """Refuse a target, a corpus too short for it, or a budget without room for one evaluation,
    before anything is computed or kept."""
    reader = reader_of(model)
    present = reader.present_plan
    start = present.longest(present.extended_layer)
    reader.check_memory(settings.target_length, ranks or Ranks())
    encoder = reader.encoder.with_chat(chat)
    for _, schedule, length in legs_of(start, settings):
        space = space_of(schedule, length, settings)
        if settings.evaluations != 0:
            reader.followed(space, settings.strategy)
        sets = split_corpus(documents, encoder, length, settings.sizes, settings.seed)
        least = len(sets.search) * length
        if settings.limited and length > schedule.geometry.original_length:
            least += len(sets.search) * schedule.geometry.original_length
        if settings.tokens is not None and settings.tokens < least:
            raise InvalidValue(
                "budget",
                f"{settings.tokens} tokens",
                f"one evaluation at {format_length(length)} takes {least:,}, over "
                f"{len(sets.search)} documents",
                "allow at least that",
            )


@dataclass(frozen=True)
class _LegSearch:
    """One leg."""

    reader: PlantedReader
    corpus: Sequence[Document]
    encoder: Encoder
    settings: SearchSettings
    layer: str
    name: str
    start: RotarySchedule
    length: int
    notice: Notice

    def over(self, ranks: Ranks, journal: Journals, progress: Progress) -> Leg | None:
        """Search with all ranks; None on those that only measured for the first one."""
        original = self.start.geometry.original_length
        documents = SearchDocuments.of(
            self.corpus, self.encoder, self.length, original, self.settings, self.notice
        )
        count = len(documents.selection.documents)
        if count < FEWEST:
            self.notice(
                f"{count} documents to select by are too few to show that a searched "
                "schedule is better, so the plan will follow a hand-designed method; at least "
                f"{FEWEST} are needed: give more text (`corpus`) or more `documents`"
            )
        local = self.reader.measure(documents.all, self._plan_of, self.notice, ranks)
        # That installing works is proven by one schedule, the same on all ranks.
        local.prove(next(iter(self._by_hand.values())))
        with measuring(ranks.apart(self.name), local) as measure:
            if measure is None:
                return None
            return self._leg(measure, documents, journal, progress, ranks.size)

    def _plan_of(self, schedule: RotarySchedule) -> ContextPlan:
        return self.reader.present_plan.with_steps(self.layer, (PlanStep(self.length, schedule),))

    def _leg(
        self,
        measure: Measure,
        documents: SearchDocuments,
        journal: Journals,
        progress: Progress,
        at_once: int,
    ) -> Leg:
        """Measure, choose, report."""
        journaled = JournaledMeasure(measure, journal(f"{self.name}-measured.jsonl"), at_once)
        reader = ScheduleReader(journaled, self.settings.objective, progress)
        candidates = self._candidates(
            reader, measure, documents, journal(f"{self.name}.jsonl"), at_once
        )
        selection = select(reader, documents, candidates, self.start, self.settings)
        chosen = selection.choice.chosen
        if selection.measured[chosen].losses.failed:
            raise RopewalkError(
                f"the model has no finite score at {self.length:,} tokens under any schedule; "
                "try float32 (`dtype`), and check that the unmodified model works"
            )
        if chosen in candidates.hand_designed and candidates.finalists:
            self.notice(
                f"search did not beat {chosen} on held-out documents, so {chosen} is used; allow "
                "more evaluations or documents"
            )
        return report(
            reader, documents, candidates, selection, self.start, self.length, self.settings
        )

    def _candidates(
        self,
        reader: ScheduleReader,
        measure: Measure,
        documents: SearchDocuments,
        journal: Journal | None,
        at_once: int,
    ) -> Candidates:
        """Score the hand-designed methods, and search from them."""
        by_hand = self._by_hand
        shown = by_hand if self.settings.reports else {}
        # The methods come first: they are the baseline that progress shows.
        on_search = reader.read("hand-designed methods", documents.search, shown)
        baselines = {name: measured.score.score for name, measured in on_search.items()}
        for name, short in reader.read(WITHIN, documents.short_search, shown).items():
            baselines[name] += float(short.losses.text.mean())
        # The strategy's objective counts short text if its cost may decide.
        space = space_of(self.start, self.length, self.settings)
        if self.settings.evaluations != 0:
            space = self.reader.followed(space, self.settings.strategy)
        short_search = documents.short_search.numbers
        original_length = self.start.geometry.original_length
        objective = ModelObjective(
            measure,
            self.settings.objective,
            documents.search.numbers,
            self.length + (original_length if short_search else 0),
            short_search,
        )
        best = min(((score, name) for name, score in baselines.items()), default=None)
        baseline = "" if best is None else f" ({best[1]} {best[0]:.3f})"
        result = self._search(space, objective, journal, at_once, reader.progress, baseline)
        if not result.finalists and self.settings.evaluations != 0:
            self.notice("the search's budget ended before it had scored a schedule")
        # Finalists are numbered, best first, as journals and notices name them.
        finalists = {f"finalist {n}": each for n, (each, _) in enumerate(result.finalists, start=1)}
        return Candidates(
            hand_designed=by_hand,
            finalists={name: space.schedule(candidate) for name, candidate in finalists.items()},
            at_bounds={name: space.bounds_met(candidate) for name, candidate in finalists.items()},
            on_search=on_search,
            by_objective=baselines,
            result=result,
        )

    def _search(
        self,
        space: Space,
        objective: ModelObjective,
        journal: Journal | None,
        at_once: int,
        progress: Progress,
        baseline: str,
    ) -> driver.Outcome:
        """Run the strategy within its budget."""
        evaluations, tokens = evaluations_of(self.settings), self.settings.tokens
        if evaluations == 0:  # a race of the hand-designed methods alone
            return driver.Outcome((), (), 0.0, 0)
        each = objective.documents * objective.tokens_per_document
        expected = min(limit for limit in (evaluations, tokens and tokens / each) if limit)

        def tell(now: driver.Progress) -> None:
            done = min(1.0, now.evaluations / expected)
            detail = (
                f"best {now.score:.3f}{baseline}  "
                f"{now.evaluations:,.0f} evaluations  {now.tokens / 1000:,.0f}k tokens"
            )
            progress(Status("searching", done, detail))

        return driver.search(
            space,
            objective,
            strategies.named(self.settings.strategy),
            seed=self.settings.seed,
            evaluations=evaluations,
            tokens=tokens,
            journal=journal,
            at_once=at_once,
            finalists=FINALISTS,
            progress=tell,
            notice=self.notice,
        )

    @cached_property
    def _by_hand(self) -> dict[str, RotarySchedule]:
        """The hand-designed methods that the model can follow; for a length that is served, the
        plain frequencies."""
        if self.length > self.start.length:
            every = hand_designed(self.start, self.length)
            follows = {name: self.reader.follows(self._plan_of(s)) for name, s in every.items()}
            return {name: schedule for name, schedule in every.items() if follows[name]}
        plain = RotarySchedule.plain(self.start.geometry)
        schedules = {"plain": plain, PRESENT: self.start}
        return {name: replace(schedule, length=self.length) for name, schedule in schedules.items()}


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
    provenance = {
        "methods": legs[0].chosen,
        **({"as_published": "yes"} if settings.as_published else {}),
        "strategy": settings.strategy,
        "objective": settings.objective,
        **code_of("objective", settings.objective),
        "seed": str(settings.seed),
    }
    return ContextPlan(plan.model, plan.schedules, provenance)
