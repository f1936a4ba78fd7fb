"""The schedule that a search at one length ends with, by documents that it did not search on.

The rule is that of evaluation/select.py. Where no finalist is shown to be better, the answer is a
hand-designed method. Algorithm 1 as published has another: the lowest perplexity of all, on the
documents of the search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ropewalk.evaluation.select import Choice, Losses, Paired, choose, paired, remaining
from ropewalk.evaluation.statistics import mean_interval
from ropewalk.evaluation.verdict import Shares
from ropewalk.interval import CONFIDENCE, Interval
from ropewalk.progress import Progress, share, silent
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.driver import Outcome
from ropewalk.searching.model.documents import DocumentSet, SearchDocuments
from ropewalk.searching.model.forwards import FIRST_ROUND
from ropewalk.searching.model.measure import ANSWERS, RETRIEVED, TEXT, Kept
from ropewalk.searching.model.objectives import loss_of
from ropewalk.searching.model.results import PRESENT, Score
from ropewalk.searching.model.settings import SearchSettings

WITHIN = "original length"
"""The stage of measuring there, in progress."""

Schedules = Mapping[str, RotarySchedule]


@dataclass(frozen=True, eq=False)
class MeasuredSchedule:
    """One schedule on the documents of a set."""

    values: FloatArray
    """[documents, 3], as a measure gives them."""
    objective: str
    texts: tuple[str, ...]
    facts: float
    """The mean number of facts in a document."""

    @property
    def score(self) -> Score:
        """The means; infinite if the schedule failed."""
        if not np.isfinite(self.values).all():
            return Score(np.inf, np.inf, 0.0, len(self.values))
        loss = float(loss_of(self.values, self.objective).mean())
        text = self.values[:, TEXT]
        nats = Interval.of(float(text.mean()), mean_interval(text), "nats", "documents")
        retrieved = Shares(self.values[:, RETRIEVED].tolist(), self.facts, self.texts)
        perplexity = nats.mapped(lambda end: float(np.exp(end)), "perplexity")
        return Score(
            loss,
            perplexity.value,
            retrieved.rate,
            len(self.values),
            perplexity.ends,
            retrieved.estimate().ends if self.facts else None,  # of plain text nothing is asked
        )

    @property
    def losses(self) -> Losses:
        """Document by document; infinite if the schedule failed."""
        finite = np.where(np.isfinite(self.values), self.values, np.inf)
        loss = loss_of(finite, self.objective)
        return Losses(loss, finite[:, TEXT], finite[:, ANSWERS], self.texts)


@dataclass(frozen=True)
class ScheduleReader:
    """Measures schedules by name, and shows how far it is."""

    kept: Kept
    objective: str
    progress: Progress

    def read(
        self, stage: str, documents: DocumentSet, schedules: Schedules
    ) -> dict[str, MeasuredSchedule]:
        """Each schedule on each document; nothing if the set is empty."""
        if not documents.documents:
            return {}
        found = {}
        for done, (name, schedule) in enumerate(schedules.items()):
            part = share(self.progress, stage, done / len(schedules), 1 / len(schedules))
            values = self.kept.measured(schedule, documents.numbers, part)
            facts = float(np.mean([len(each.answers) for each in documents.documents]))
            found[name] = MeasuredSchedule(values, self.objective, documents.texts, facts)
        return found


@dataclass(frozen=True)
class Candidates:
    """The schedules that may be best at a length, as a search leaves them."""

    by_hand: Schedules
    finalists: Schedules
    """The best of the searched ones, best first."""
    at_bounds: Mapping[str, tuple[str, ...]]
    """The bounds of the space that a finalist lies on, in words."""
    on_search: Mapping[str, MeasuredSchedule]
    """The hand-designed methods on the documents of the search."""
    by_objective: Mapping[str, float]
    """Their scores as the search counts them: with the loss of short text, if that counts."""
    result: Outcome

    @property
    def all(self) -> dict[str, RotarySchedule]:
        return {**self.by_hand, **self.finalists}


@dataclass(frozen=True)
class Selection:
    """The choice, and the measurements that it rests on."""

    choice: Choice
    measured: Mapping[str, MeasuredSchedule]
    """Every candidate, on the documents that it saw before it dropped out."""
    remaining: Sequence[str]
    """The candidates that saw all documents, and may be best by them."""
    short_costs: Mapping[str, Paired]
    """Nats a token of short text above the present schedule: of those that remain."""
    level: float
    """That of the intervals by which others dropped out."""
    by_rule: str | None = None
    """The name that the rule gives, if the choice is Algorithm 1's own."""


def select(
    reader: ScheduleReader,
    documents: SearchDocuments,
    candidates: Candidates,
    present: RotarySchedule,
    settings: SearchSettings,
) -> Selection:
    """Choose among the candidates by the documents to select by, and by those cut short."""
    schedules = candidates.all
    measured, left, level = race(reader, documents.selection, schedules, candidates.by_hand)
    # Short text costs nothing if a schedule of its own serves it, or nothing limits the cost.
    some = documents.short_selection
    at_present = reader.read(WITHIN, some, {PRESENT: present})
    short = reader.read(WITHIN, some, {name: schedules[name] for name in left})
    costs = {
        name: paired(own.losses.text, at_present[PRESENT].losses.text, some.texts)
        for name, own in short.items()
        if not own.losses.failed
    }
    choice = choose(
        {name: measured[name].losses for name in left},
        candidates.by_hand,
        len(candidates.finalists),
        costs,
        settings.short_limit or 0,
    )
    if settings.as_published and candidates.finalists:  # line 10 of Algorithm 1
        lowest = next(iter(candidates.finalists))
        choice, rule = choice._replace(chosen=lowest), choice.chosen
        return Selection(choice, measured, left, costs, level, by_rule=rule)
    return Selection(choice, measured, left, costs, level)


def race(
    reader: ScheduleReader, documents: DocumentSet, schedules: Schedules, by_hand: Schedules
) -> tuple[dict[str, MeasuredSchedule], list[str], float]:
    """Measure all schedules on a few documents, and those that may be best on twice as many.

    Also returns the names of those that may be best after all documents, and the level of the
    intervals that tell.
    """
    count, kept = len(documents.documents), reader.kept
    looks = [min(count, FIRST_ROUND)]
    while looks[-1] < count:
        looks.append(min(count, 2 * looks[-1]))
    measured: dict[str, MeasuredSchedule] = {}
    left, done = list(schedules), 0
    tests = len(schedules) * len(looks)  # each look at each schedule is a test of its own
    for look in looks:
        size = (look - done) / count / len(left)
        for number, name in enumerate(left):
            part = share(reader.progress, "selecting", done / count + number * size, size)
            kept.measured(schedules[name], documents.numbers[done:look], part)
        # All that a schedule has seen: the new documents are known by now, as the others were.
        seen = documents.until(look)
        measured |= ScheduleReader(kept, reader.objective, silent).read(
            "selecting", seen, {name: schedules[name] for name in left}
        )
        losses = {name: measured[name].losses for name in left}
        left, done = remaining(losses, by_hand, tests), look
    return measured, left, 1 - (1 - CONFIDENCE) / tests
