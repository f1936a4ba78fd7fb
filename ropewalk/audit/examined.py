"""A model on disk under examination: what a folder and a GGUF file have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from ropewalk.audit.files.check import Check, Checked
from ropewalk.audit.result import ModelForm
from ropewalk.context_plan import APPROXIMATES, EDITED, EDITED_SINCE, ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.progress import Progress
from ropewalk.runtimes import traps
from ropewalk.runtimes.finding import Finding, Subject
from ropewalk.runtimes.reading import RotaryReading
from ropewalk.runtimes.runtime import Form, Runtime
from ropewalk.runtimes.trials import Trial


class Expected(NamedTuple):
    """The plan that a model is compared with."""

    plan: ContextPlan | None
    """None if nothing is known that it should follow."""
    planned: bool
    """True if somebody planned it; False if it is what the model's own config means."""
    notes: tuple[str, ...] = ()

    def with_edits_noted(self) -> Expected:
        """The same, with a note for a plan that is not the one ropewalk wrote."""
        edited = self.plan is not None and self.planned and EDITED in self.plan.provenance
        return self._replace(notes=(*self.notes, EDITED_SINCE)) if edited else self


@dataclass(frozen=True)
class Files:
    """The checks of a model's files, before anything is read by a runtime."""

    weights: Checked
    tokenizer: Checked
    content: Checked
    there: bool = True
    """True if weights are there to be loaded."""

    @property
    def loadable(self) -> bool:
        return self.there and self.weights.check.verdict != "wrong"

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(
            f for each in (self.weights, self.tokenizer, self.content) for f in each.findings
        )

    def checks(self, loaded: str) -> tuple[Check, ...]:
        """The checks; a runtime that loaded the model read all weights, whatever headers say."""
        weights = self.weights.check
        if loaded and weights.verdict != "OK":
            what = f"{weights.what}; {loaded}"
            weights = replace(weights, verdict="OK", what=what, remedy="")
        return weights, self.tokenizer.check, self.content.check


class Examined(ABC):
    """A folder or a GGUF file."""

    form: ClassVar[Form]
    target: ClassVar[ModelForm]
    path: Path
    written_for: str = ""
    """The runtime of its export, whose verdict counts; empty if those of all runtimes count."""

    @abstractmethod
    def expected(self, plan: ContextPlan | None) -> Expected:
        """The plan to compare with: the given one, or what the model carries."""

    @abstractmethod
    def stated_length(self) -> int:
        """The length that the model states, where no plan does."""

    @abstractmethod
    def check_files(self, progress: Progress) -> Files:
        """Check that its files are whole, and belong together."""

    @abstractmethod
    def read_by(self, runtime: Runtime, lengths: Sequence[int]) -> RotaryReading:
        """A runtime's reading of it, at these lengths."""

    @abstractmethod
    def subject(
        self, readings: Sequence[RotaryReading], expected: Expected, length: int, *, asked: bool
    ) -> Subject:
        """What is searched for traps."""

    def faults(self, subject: Subject) -> tuple[Finding, ...]:
        """The traps that it is in."""
        return traps.find(subject)

    @abstractmethod
    def tried(
        self,
        readings: Sequence[RotaryReading],
        expected: Expected,
        files: Files,
        faults: Sequence[Finding],
        progress: Progress,
    ) -> Trial:
        """Run it in the runtimes that run here; nothing is said twice that `faults` say."""


def given_or_own(
    given: ContextPlan | None, read_own: Callable[[], ContextPlan], place: str
) -> tuple[ContextPlan, tuple[str, ...]]:
    """An export's own plan, if none is given, or if it approximates the given one."""
    try:
        own = read_own()
    except RopewalkError:
        if given is None:
            raise
        return given, ()
    if given is None:
        return own, (f"compared with {place}",)
    if own.provenance.get(APPROXIMATES) == given.id:
        return own, (f"compared with {place}, the approximation that its export was allowed",)
    return given, ()
