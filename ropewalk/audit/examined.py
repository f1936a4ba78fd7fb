"""The parts that the examinations of a folder and of a GGUF file have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ropewalk.audit.files.check import Check, Checked
from ropewalk.context_plan import APPROXIMATES, EDITED, EDITED_SINCE, ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.runtimes.finding import Finding


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


def expected_plan(
    given: ContextPlan | None, read_plan: Callable[[], ContextPlan], place: str
) -> tuple[ContextPlan, tuple[str, ...]]:
    """An export's own plan, if none is given, or if it approximates the given one."""
    try:
        plan = read_plan()
    except RopewalkError:
        if given is None:
            raise
        return given, ()
    if given is None:
        return plan, (f"compared with {place}",)
    if plan.provenance.get(APPROXIMATES) == given.id and EDITED not in plan.provenance:
        return plan, (f"compared with {place}, the approximation that its export was allowed",)
    return given, ()
