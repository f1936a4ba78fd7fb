"""The report on a search at one length: its choice, on documents that decided nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ropewalk.evaluation.select import Paired, paired
from ropewalk.interval import CONFIDENCE
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.choose import (
    WITHIN,
    Candidates,
    MeasuredSchedule,
    ScheduleReader,
    Schedules,
    Selection,
)
from ropewalk.searching.model.documents import SearchDocuments
from ropewalk.searching.model.results import (
    PRESENT,
    SEARCHED,
    Leg,
    Score,
    ScoredSchedule,
    schedule_in_words,
)
from ropewalk.searching.model.settings import SearchSettings
from ropewalk.searching.space import STEPS_PER_UNIT

ROUNDED = 1.5 / STEPS_PER_UNIT
"""The largest change of a schedule's factors, as a ratio, when a search rounds them."""


def report(
    reader: ScheduleReader,
    documents: SearchDocuments,
    candidates: Candidates,
    selection: Selection,
    present: RotarySchedule,
    length: int,
    settings: SearchSettings,
) -> Leg:
    """Measure the choice next to the hand-designed methods, and describe it."""
    by_hand, schedules, choice = candidates.by_hand, candidates.all, selection.choice
    chosen, baseline = choice.chosen, choice.best_hand_designed
    name = chosen if chosen in by_hand else SEARCHED
    alone = {chosen: schedules[chosen]}
    reported = reader.read("reporting", documents.reporting, {**by_hand, **alone})
    on_search = dict(candidates.on_search)
    if settings.reports and chosen not in on_search:
        on_search |= reader.read("reporting", documents.search, alone)
    # The price within the original length, of the chosen and of the method it has to beat.
    short_schedules = {PRESENT: present, baseline: schedules[baseline], name: schedules[chosen]}
    short = reader.read(WITHIN, documents.short_reporting, short_schedules)

    def arm(own: str) -> ScoredSchedule:
        def on(measured: Mapping[str, MeasuredSchedule]) -> Score | None:
            return measured[own].score if own in measured else None

        selected = selection.measured[own].score
        return ScoredSchedule(schedules[own], on(on_search), selected, on(reported))

    return Leg(
        length=length,
        chosen=name,
        best_hand_designed=baseline,
        best=arm(chosen),
        baselines={own: arm(own) for own in by_hand},
        selection=choice.comparison,
        selection_text=choice.text,
        selection_answers=choice.answers,
        best_searched=choice.best_searched and _described(schedules[choice.best_searched], by_hand),
        held_out=_less(reported[chosen], reported[baseline])
        if reported and name != chosen
        else None,
        remaining=tuple(own for own in by_hand if own in selection.remaining),
        sources={
            purpose: getattr(documents, purpose).sources
            for purpose in ("search", "selection", "reporting")
        },
        history=candidates.result.history,
        evaluations=candidates.result.evaluations,
        tokens=candidates.result.tokens,
        at_bounds=candidates.at_bounds.get(chosen, ()),
        at_original_length={own: measured.score for own, measured in short.items()},
        cost_at_original_length=_less(short[name], short[PRESENT]) if short else None,
        short_costs={
            name if own == chosen else own: cost
            for own, cost in selection.short_costs.items()
            if own in by_hand or own == chosen
        },
        short_limit=settings.short_limit,
        behind=_behind(selection, by_hand, baseline),
        by_objective=candidates.by_objective,
        by_rule=_by_rule(selection, candidates),
    )


def _behind(selection: Selection, by_hand: Schedules, baseline: str) -> dict[str, Paired]:
    """The difference of each hand-designed method from the best, where neither failed."""
    best, level = selection.measured[baseline], selection.level
    less = {own: _less(selection.measured[own], best, level) for own in by_hand if own != baseline}
    return {own: found for own, found in less.items() if found is not None}


def _by_rule(selection: Selection, candidates: Candidates) -> str | None:
    """The schedule that the rule gives, in words, if the choice is Algorithm 1's own."""
    name = selection.by_rule
    if name is None or name in candidates.by_hand:
        return name
    described = _described(candidates.all[name], candidates.by_hand)
    return f"the same schedule ({described})" if name == selection.choice.chosen else described


def _less(
    first: MeasuredSchedule, second: MeasuredSchedule, level: float = CONFIDENCE
) -> Paired | None:
    """The difference on the documents that both read; None if the model failed."""
    if first.losses.failed or second.losses.failed:
        return None
    texts = min(first.texts, second.texts, key=len)
    one, other = (each.losses.objective[: len(texts)] for each in (first, second))
    return paired(one, other, texts, level)


def _described(searched: RotarySchedule, by_hand: Schedules) -> str:
    """A searched schedule by the hand-designed one that it is, up to the rounding of a search."""

    def apart(known: RotarySchedule) -> float:
        factors = np.log(searched.rescale_factors / known.rescale_factors)
        scaling = np.log(searched.attention_scaling / known.attention_scaling)
        return float(max(np.abs(factors).max(), abs(scaling)))

    name, nearest = min(((n, apart(s)) for n, s in by_hand.items()), key=lambda each: each[1])
    if nearest >= ROUNDED or searched.recipe[-1].method != "longrope":
        return schedule_in_words(searched)
    return f"{name}, rounded to the search grid"
