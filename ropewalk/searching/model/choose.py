"""Chooses the schedule that a search at one length ends with, on documents it did not search on.

The rule is that of evaluation/select.py: a hand-designed method, unless a searched schedule (a
*finalist*) is shown to be better. LongRoPE's Algorithm 1 as published has another rule: the lowest
perplexity on the documents of the search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ropewalk.evaluation.select import Choice, Losses, Paired, choose, paired, remaining
from ropewalk.evaluation.statistics import enough, mixed_mean_interval
from ropewalk.evaluation.verdict import Shares
from ropewalk.interval import CONFIDENCE, Interval
from ropewalk.progress import Progress, share, silent
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.driver import Outcome
from ropewalk.searching.model.documents import DocumentSet, SearchDocuments
from ropewalk.searching.model.forwards import FIRST_ROUND
from ropewalk.searching.model.measure import ANSWERS, RETRIEVED, TEXT, JournaledMeasure
from ropewalk.searching.model.objectives import loss_of
from ropewalk.searching.model.results import PRESENT, Score
from ropewalk.searching.model.settings import SearchSettings

WITHIN = "original length"
"""The stage of measuring within it, as progress shows it."""

Schedules = Mapping[str, RotarySchedule]


@dataclass(frozen=True, eq=False)
class MeasuredSchedule:
    """The values of one schedule on the documents of a set."""

    values: FloatArray
    """[documents, entries], as a `Measure` gives them."""
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
        ends = mixed_mean_interval(text, enough(self.texts))
        nats = Interval.of(float(text.mean()), ends, "nats", "documents")
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
    """Measures named schedules on sets of documents, and reports its progress."""

    journaled: JournaledMeasure
    objective: str
    progress: Progress

    def read(
        self, stage: str, documents: DocumentSet, schedules: Schedules
    ) -> dict[str, MeasuredSchedule]:
        """Each schedule on each document; nothing if the set is empty."""
        if not documents.documents:
            return {}
        measured = {}
        for done, (name, schedule) in enumerate(schedules.items()):
            part = share(self.progress, stage, done / len(schedules), 1 / len(schedules))
            values = self.journaled.measured(schedule, documents.numbers, part)
            facts = float(np.mean([len(each.answers) for each in documents.documents]))
            measured[name] = MeasuredSchedule(values, self.objective, documents.texts, facts)
        return measured


@dataclass(frozen=True)
class Candidates:
    """The schedules that may be best at a length, as a search leaves them."""

    hand_designed: Schedules
    finalists: Schedules
    """The best of the searched ones, best first."""
    at_bounds: Mapping[str, tuple[str, ...]]
    """The bounds of the space that a finalist lies on, in words."""
    on_search: Mapping[str, MeasuredSchedule]
    """The hand-designed methods on the documents of the search."""
    by_objective: Mapping[str, float]
    """Their values of the search's objective, which may add the loss of short text."""
    result: Outcome

    @property
    def all(self) -> dict[str, RotarySchedule]:
        return {**self.hand_designed, **self.finalists}


@dataclass(frozen=True)
class Selection:
    """A choice, and the measurements that it rests on."""

    choice: Choice
    measured: Mapping[str, MeasuredSchedule]
    """Every candidate, on the documents that it saw before it dropped out."""
    remaining: Sequence[str]
    """The candidates that saw all documents, and may be best by them."""
    short_costs: Mapping[str, Paired]
    """Nats per token of short text above the present schedule, for those that remain."""
    short_behind: Mapping[str, Paired]
    """The same above the chosen schedule."""
    level: float
    """The level of the intervals by which others dropped out."""
    by_rule: str | None = None
    """The name that select.py's rule gives, if the choice is that of Algorithm 1."""


def select(
    reader: ScheduleReader,
    documents: SearchDocuments,
    candidates: Candidates,
    present: RotarySchedule,
    settings: SearchSettings,
) -> Selection:
    """Choose among the candidates on the selection documents, and on the same cut short."""
    schedules = candidates.all
    measured, still_in, level = race(
        reader, documents.selection, schedules, candidates.hand_designed
    )
    # The cost on short text, next to the present schedule. There are no such documents, and so no
    # costs, if another schedule serves short text or if nothing limits the cost.
    short_documents = documents.short_selection
    left = {name: schedules[name] for name in still_in}
    short = reader.read(WITHIN, short_documents, {PRESENT: present, **left})
    losses = {n: m.losses for n, m in short.items() if n == PRESENT or not m.losses.failed}

    def above(other: str) -> dict[str, Paired]:
        return {
            name: paired(loss.text, losses[other].text, short_documents.texts)
            for name, loss in losses.items()
            if other in losses and name not in (PRESENT, other)
        }

    costs = above(PRESENT)
    choice = choose(
        {name: measured[name].losses for name in still_in},
        candidates.hand_designed,
        len(candidates.finalists),
        costs,
        settings.short_limit or 0,
    )
    rule = None
    # Line 10 of Algorithm 1; finalists are in the order of their scores on the search's documents.
    if settings.as_published and candidates.finalists:
        choice, rule = choice._replace(chosen=next(iter(candidates.finalists))), choice.chosen
    return Selection(choice, measured, still_in, costs, above(choice.chosen), level, rule)


def race(
    reader: ScheduleReader, documents: DocumentSet, schedules: Schedules, hand_designed: Schedules
) -> tuple[dict[str, MeasuredSchedule], list[str], float]:
    """Measure all schedules on a few documents, then those that may be best on twice as many, …

    Returns every schedule on the documents that it was measured on, the names of those that may be
    best after all documents, and the level of the intervals by which the others dropped out.
    """
    # The looks: the counts of documents after which schedules drop out.
    count, journaled = len(documents.documents), reader.journaled
    looks = [min(count, FIRST_ROUND)]
    while looks[-1] < count:
        looks.append(min(count, 2 * looks[-1]))
    measured: dict[str, MeasuredSchedule] = {}
    still_in, done = list(schedules), 0
    tests = len(schedules) * len(looks)  # each look at each schedule is a test of its own
    for look in looks:
        # The documents that are new in this look, with the progress over all of them.
        size = (look - done) / count / len(still_in)
        for number, name in enumerate(still_in):
            part = share(reader.progress, "selecting", done / count + number * size, size)
            journaled.measured(schedules[name], documents.numbers[done:look], part)
        # All documents up to this look: the journal has every value by now.
        measured |= ScheduleReader(journaled, reader.objective, silent).read(
            "selecting", documents.until(look), {name: schedules[name] for name in still_in}
        )
        losses = {name: measured[name].losses for name in still_in}
        still_in, done = remaining(losses, hand_designed, tests), look
    return measured, still_in, 1 - (1 - CONFIDENCE) / tests
