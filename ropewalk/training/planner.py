"""The plan of each stage of a training: given, searched, or made by a method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ropewalk.context_plan import ContextPlan
from ropewalk.models.source import Source
from ropewalk.planning.request import PlanRequest, planned
from ropewalk.progress import Notice, Progress, silent, unheard
from ropewalk.scaling import stacked
from ropewalk.training.recipes import SEARCH
from ropewalk.training.settings import StageSettings

_RANKED = "ntk"  # the methods that rank first begin where it does


@dataclass(frozen=True)
class StagePlanner:
    """The plans of all stages, by what was asked for."""

    stages: Sequence[StageSettings]
    plans: Sequence[ContextPlan]
    """One for all stages, or one for each; empty for a method's."""
    method: str | None
    """None for the one that ranks first."""
    bases: Callable[[int], float | None] | None = None
    """A recipe's base for a length."""
    search_between: bool = False
    """True if stages after the first are searched, whatever the method."""

    def is_searched(self, number: int) -> bool:
        """True if the plan of a stage is searched."""
        if self.plans:
            return False
        return self.method == SEARCH or (self.search_between and number > 1)

    @property
    def searches(self) -> bool:
        return any(self.is_searched(number + 1) for number in range(len(self.stages)))

    def name(self, number: int, served: int) -> str:
        """The method of a stage, for a preview; the model serves a length at first."""
        if self.plans:
            return self._given(number).provenance.get("methods", "plan")
        if self.is_searched(number):
            return SEARCH
        if self.stages[number - 1].length == served:
            return "unmodified"
        return self.method or "ranked first by plan"

    def planned(
        self, number: int, source: Source, progress: Progress = silent, notice: Notice = unheard
    ) -> ContextPlan:
        """The plan of a stage that is not searched, for the model or config that it begins with."""
        present, length = source.present_plan, self.stages[number - 1].length
        if self.plans:
            plan = self._given(number)
            # One plan for all stages: the later ones begin with a model that follows it.
            same = len(self.plans) == 1 < number and _follows(present, plan)
            return present if same else plan
        if length == present.target_length:
            return present
        now = present.longest(present.extended_layer).geometric_base
        base = None
        if self.method == "base_change" and self.bases is not None:
            base = self.bases(length)
        # Such a method starts from the plain frequencies again, as YaRN's authors do.
        anew = now is None and any(each.geometric_start for each in stacked(self.method or _RANKED))
        request = PlanRequest(
            source,
            length,
            self.method,
            {} if base is None else {"base": max(base, now or base)},
            from_original=anew and self.method is not None,
            after_training=True,
        )
        return planned(request, progress, notice).plan

    def _given(self, number: int) -> ContextPlan:
        return self.plans[min(number, len(self.plans)) - 1]


def _follows(present: ContextPlan, plan: ContextPlan) -> bool:
    """True if a model follows a plan up to its length, in whatever form its config says it."""
    now, goal = (each.longest(each.extended_layer) for each in (present, plan))
    return (
        present.target_length == plan.target_length
        and now.attention_scaling == goal.attention_scaling
        and bool(np.allclose(now.inverse_frequencies, goal.inverse_frequencies, rtol=1e-6, atol=0))
    )
