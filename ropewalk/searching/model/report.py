"""The report on a search at one length: its choice, on documents that no decision rests on."""

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
"""The largest change of log λ when a search rounds factors to its grid."""


def report(
    reader: ScheduleReader,
    documents: SearchDocuments,
    candidates: Candidates,
    selection: Selection,
    present: RotarySchedule,
    length: int,
    settings: SearchSettings,
) -> Leg:
    """Measure the choice and the hand-designed methods on the report's documents; describe both."""
    hand_designed, schedules, choice = candidates.hand_designed, candidates.all, selection.choice
    chosen, baseline = choice.chosen, choice.best_hand_designed
    name = chosen if chosen in hand_designed else SEARCHED
    # Held-out documents, and for comparison those of the search, on which scores are too good.
    only_chosen = {chosen: schedules[chosen]}
    reported = reader.read("reporting", documents.reporting, {**hand_designed, **only_chosen})
    on_search = dict(candidates.on_search)
    if settings.reports and chosen not in on_search:
        on_search |= reader.read("reporting", documents.search, only_chosen)
    # The cost within the original length, of the choice and of the method that it has to beat.
    short_schedules = {PRESENT: present, baseline: schedules[baseline], name: schedules[chosen]}
    short = reader.read(WITHIN, documents.short_reporting, short_schedules)

    def scored(candidate: str) -> ScoredSchedule:
        def on(measured: Mapping[str, MeasuredSchedule]) -> Score | None:
            return measured[candidate].score if candidate in measured else None

        selected = selection.measured[candidate].score
        return ScoredSchedule(schedules[candidate], on(on_search), selected, on(reported))

    return Leg(
        length=length,
        chosen=name,
        best_hand_designed=baseline,
        best=scored(chosen),
        baselines={method: scored(method) for method in hand_designed},
        selection=choice.comparison,
        selection_text=choice.text,
        selection_answers=choice.answers,
        best_searched=choice.best_searched
        and _described(schedules[choice.best_searched], hand_designed),
        held_out=_difference(reported[chosen], reported[baseline])
        if reported and name != chosen
        else None,
        remaining=tuple(method for method in hand_designed if method in selection.remaining),
        sources={
            purpose: getattr(documents, purpose).sources
            for purpose in ("search", "selection", "reporting")
        },
        history=candidates.result.history,
        evaluations=candidates.result.evaluations,
        tokens=candidates.result.tokens,
        at_bounds=candidates.at_bounds.get(chosen, ()),
        at_original_length={shown: measured.score for shown, measured in short.items()},
        cost_at_original_length=_difference(short[name], short[PRESENT]) if short else None,
        short_costs={
            name if candidate == chosen else candidate: cost
            for candidate, cost in selection.short_costs.items()
            if candidate in hand_designed or candidate == chosen
        },
        short_behind={n: d for n, d in selection.short_behind.items() if n in hand_designed},
        short_limit=settings.short_limit,
        behind=_behind(selection, hand_designed, baseline),
        by_objective=candidates.by_objective,
        by_rule=_by_rule(selection, candidates),
    )


def _behind(selection: Selection, hand_designed: Schedules, baseline: str) -> dict[str, Paired]:
    """The difference of each hand-designed method from the best, where neither failed."""
    best, level = selection.measured[baseline], selection.level
    less = {
        name: _difference(selection.measured[name], best, level)
        for name in hand_designed
        if name != baseline
    }
    return {name: difference for name, difference in less.items() if difference is not None}


def _by_rule(selection: Selection, candidates: Candidates) -> str | None:
    """The schedule that select.py's rule gives, in words, if the choice is that of Algorithm 1."""
    name = selection.by_rule
    if name is None or name in candidates.hand_designed:
        return name
    described = _described(candidates.all[name], candidates.hand_designed)
    return f"the same schedule ({described})" if name == selection.choice.chosen else described


def _difference(
    first: MeasuredSchedule, second: MeasuredSchedule, level: float = CONFIDENCE
) -> Paired | None:
    """The first minus the second on the documents that both read; None if the model failed."""
    if first.losses.failed or second.losses.failed:
        return None
    texts = min(first.texts, second.texts, key=len)
    one, other = (each.losses.objective[: len(texts)] for each in (first, second))
    return paired(one, other, texts, level)


def _described(searched: RotarySchedule, hand_designed: Schedules) -> str:
    """A searched schedule in words: by the hand-designed one that it equals up to rounding, if
    any."""

    def distance(schedule: RotarySchedule) -> float:
        factors = np.log(searched.rescale_factors / schedule.rescale_factors)
        scaling = np.log(searched.attention_scaling / schedule.attention_scaling)
        return float(max(np.abs(factors).max(), abs(scaling)))

    name, nearest = min(
        ((n, distance(s)) for n, s in hand_designed.items()), key=lambda each: each[1]
    )
    if nearest >= ROUNDED or searched.recipe[-1].method != "longrope":
        return schedule_in_words(searched)
    return f"{name}, rounded to the search grid"
