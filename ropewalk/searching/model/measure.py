"""A model measured under schedules, on documents with planted questions (evaluation/planted.py).

A schedule is measured on one document by one forward, in a batch of one: so a value depends neither
on the other requests nor on the process that computes it. The same forward gives the loss of the
text, the loss of the answers and the number of right answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.evaluation.answering import TokenScores
from ropewalk.evaluation.encoding import IntArray
from ropewalk.evaluation.in_llama_cpp import SCORED, scores_of
from ropewalk.evaluation.planted import Planted
from ropewalk.evaluation.randomness import identity
from ropewalk.evaluation.scoring import Scorer
from ropewalk.models.install import applied
from ropewalk.run_directory import Journal
from ropewalk.schedule import FloatArray, RotarySchedule

if TYPE_CHECKING:
    from ropewalk.gguf.llama_cpp_run import RunningLlamaCpp

TEXT, ANSWERS, RETRIEVED, MATCHED = ENTRIES = range(4)
"""The entries of a measurement: nats per token of the text, nats per token of the answers, the
share of answers that were matched exactly (each token was the likeliest, and then the end), and
which these are: 2ⁱ for each matched answer i, summed. All but the first are 0 if nothing was
planted."""

Measure = Callable[[Sequence[RotarySchedule], Sequence[int]], FloatArray]
"""[schedules, documents, entries]; NaN throughout for a schedule that failed on any document."""


PlanOf = Callable[[RotarySchedule], ContextPlan]
"""The plan by which a model follows a schedule."""


class DocumentMeasure(ABC):
    """A model and its documents: a `Measure` that reads them under one schedule after the other."""

    documents: Sequence[Planted]

    def __call__(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        return without_failures(np.stack([self._row(each, documents) for each in schedules]))

    def one(self, schedule: RotarySchedule, document: int) -> FloatArray:
        """One schedule on one document; NaN if the model fails under it."""
        values: FloatArray = self._row(schedule, [document])[0]
        return values

    def likeliest(self, schedule: RotarySchedule, document: int) -> IntArray:
        """The likeliest token in the place of each scored one; empty if the model fails."""
        with self.under(schedule):
            scores = self.scores(self.documents[document])
        return np.array([] if scores is None else scores.chosen, dtype=np.int64)

    def prove(self, schedule: RotarySchedule) -> None:
        """Check, once, that installing a schedule changes the model's rotation as it should."""
        return

    @abstractmethod
    def under(self, schedule: RotarySchedule) -> AbstractContextManager[object]:
        """The state in which the model follows a schedule."""

    @abstractmethod
    def scores(self, document: Planted) -> TokenScores | None:
        """The scores of a document's tokens from its first scored one on; None if it fails."""

    def _row(self, schedule: RotarySchedule, documents: Sequence[int]) -> FloatArray:
        with self.under(schedule):
            return np.stack([self._entries(self.documents[document]) for document in documents])

    def _entries(self, document: Planted) -> FloatArray:
        scores = self.scores(document)
        return np.array([np.nan for _ in ENTRIES] if scores is None else document.measured(scores))


class LlamaCppMeasure(DocumentMeasure):
    """A GGUF file in llama.cpp.

    Each scored token is a step of its own there, so less of the text is scored than in process.
    """

    def __init__(
        self,
        documents: Sequence[Planted],
        plan_of: PlanOf,
        running: Callable[[ContextPlan], RunningLlamaCpp],
    ) -> None:
        self.documents = [each.with_scored(SCORED) for each in documents]
        self._plan_of, self._running = plan_of, running

    @contextmanager
    def under(self, schedule: RotarySchedule) -> Iterator[None]:
        self._llama = self._running(self._plan_of(schedule))
        yield

    def scores(self, document: Planted) -> TokenScores:
        positions = document.scored.tolist()
        return scores_of(self._llama, document.tokens, positions, document.scored_from)


@dataclass(eq=False)
class LocalMeasure(DocumentMeasure):
    """A model in this process."""

    model: torch.nn.Module
    documents: Sequence[Planted]
    plan_of: PlanOf
    notice: Callable[[str], None] = lambda text: None
    in_step: bool = field(default=False, kw_only=True)
    """Other ranks hold parts of the model and take part in each forward, so none is repeated."""
    in_chunks: bool = field(default=False, kw_only=True)
    """Long documents may be read in chunks: ranks that hold heads all read the same one."""

    def __post_init__(self) -> None:
        self._scorer = Scorer(self.model, in_chunks=self.in_chunks)
        self._proven = False

    def prove(self, schedule: RotarySchedule) -> None:
        """Check that installing works, once: it is a fact about the model.

        Ranks that share the model must do so by the same schedule, since the number of forwards
        that it takes depends on it.
        """
        with applied(self.model, self.plan_of(schedule)):
            self._proven = True

    def under(self, schedule: RotarySchedule) -> AbstractContextManager[object]:
        if not self._proven:
            self.prove(schedule)
        return applied(self.model, self.plan_of(schedule), check=False)

    def scores(self, document: Planted) -> TokenScores | None:
        for last_try in (False, True):
            try:
                [scores] = self._scorer.score([document.tokens], [document.scored_from])
            except (RuntimeError, RopewalkError) as error:
                # Three ends: a fault of ours is raised; a model that computes no finite logits
                # fails under this schedule alone; without memory, one more try takes less of it.
                if isinstance(error, RuntimeError) and not _out_of_memory(error):
                    raise
                if isinstance(error, RuntimeError) and self.in_step:
                    raise RopewalkError(
                        f"out of memory on {document.source}, on a rank that shares the model with "
                        "others; give a copy more ranks (`ranks_per_copy`)"
                    ) from None
                if isinstance(error, RopewalkError) or last_try:
                    self.notice(f"failed on {document.source}: {error}")
                    return None
                self._scorer.logits_at_once //= 2
                self.notice(
                    "out of memory; logits are computed in chunks of half the size from here on"
                )
            else:
                return scores
        raise AssertionError("the second try returns")


class MeasuredDocument(NamedTuple):
    """A line of the journal of a measure."""

    of: str
    """The identity of a schedule and a document."""
    measured: tuple[float | None, ...]


class JournaledMeasure:
    """A measure that keeps its values in a journal, one line for a schedule and a document.

    A forward of a large model takes minutes; a run that is killed loses one, or one for each rank.
    """

    def __init__(self, measure: Measure, journal: Journal | None, at_once: int) -> None:
        self._measure, self._journal, self._at_once = measure, journal, at_once
        self._known: dict[str, FloatArray] = {}
        for line in journal.read(MeasuredDocument) if journal else ():
            if len(line.measured) == len(ENTRIES):  # older ones hold fewer; those are read again
                self._known[line.of] = np.array(line.measured, np.float64)  # None becomes NaN

    def measured(
        self,
        schedule: RotarySchedule,
        documents: Sequence[int],
        progress: Callable[[float], None] = lambda done: None,
    ) -> FloatArray:
        """The entries on each document; only those that no line holds are computed."""
        of_schedule = schedule.to_json()
        keys = {document: identity(of_schedule, [document]) for document in documents}
        missing = [document for document in documents if keys[document] not in self._known]
        # As many documents at a time as there are ranks: each computes one, then all are kept.
        for start in range(0, len(missing), self._at_once):
            progress((len(documents) - len(missing) + start) / len(documents))
            part = missing[start : start + self._at_once]
            rows = self._measure([schedule], part)[0]
            self._known |= {keys[document]: row for document, row in zip(part, rows, strict=True)}
            if self._journal:
                self._journal.append(
                    {"of": keys[d], "measured": [None if x != x else x for x in row.tolist()]}
                    for d, row in zip(part, rows, strict=True)
                )
        progress(1.0)
        rows_of_all = np.stack([self._known[keys[document]] for document in documents])
        measured: FloatArray = without_failures(rows_of_all[None])[0]
        return measured


def without_failures(measured: FloatArray) -> FloatArray:
    """The same, with NaN for a schedule on every document where it failed on one."""
    failed = np.array([not np.isfinite(schedule).all() for schedule in measured])
    return np.where(failed[:, None, None], np.nan, measured)


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)
