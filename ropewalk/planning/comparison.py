"""Every method at one target, judged by theory alone and ranked.

Three things can be said of a schedule before a model runs, in this order of weight:

1. new angles: pairs that training never turned so far (coverage) fail at once without fine-tuning;
2. violations: distances where a random key outscores a similar one (decay) cannot be trained away;
3. fast pairs: those carry local order, and the further λ moves them, the more has to be relearnt.

So candidates are ranked by the number of pairs with new angles, then by violations, then by how far
the fast pairs are moved. It is a starting order; evaluation has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import InputError
from ropewalk.planning.extension import extend_plan
from ropewalk.scaling import names
from ropewalk.schedule import RotarySchedule
from ropewalk.theory.coverage import Coverage, coverage
from ropewalk.theory.decay import Decay, decay

FAST_TURNS = 32
"""A pair is fast if it turns this often in the original length (YaRN's beta_fast)."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One method's plan for the target, and what the theory says of it."""

    methods: str
    parameters: Mapping[str, object]
    plan: ContextPlan
    schedule: RotarySchedule
    """The one that serves the target."""
    decay: Decay
    coverage: Coverage
    fast_stretch: float
    """By how much the most affected fast pair turns slower than before; 1 if none is touched."""

    @property
    def rank(self) -> tuple[int, int, float]:
        """Smaller is better."""
        return len(self.coverage.out_of_distribution), self.decay.violations, self.fast_stretch

    @property
    def reason(self) -> str:
        """The three points in a sentence."""
        new = len(self.coverage.out_of_distribution)
        pairs = len(self.coverage.seen)
        angles = f"{new} of {pairs} pairs meet new angles" if new else "no angle is new"
        if self.decay.first_violation is None:
            advantage = "similar keys win at every distance"
        else:
            advantage = (
                f"similar keys lose at {self.decay.violations:,} distances, "
                f"first at {self.decay.first_violation:,}"
            )
        if self.fast_stretch < 1.0005:
            fast = "fast pairs stay as they are"
        else:
            fast = f"fast pairs turn up to {self.fast_stretch:.3g} times slower"
        return f"{angles}, {advantage}, and {fast}."


@dataclass(frozen=True, eq=False)
class Comparison:
    """All candidates, best first, and why the other methods are not among them."""

    target_length: int
    candidates: tuple[Candidate, ...]
    refused: Mapping[str, str]


def compare(
    present: ContextPlan,
    target_length: int,
    *,
    layer_types: Sequence[str] = (FULL_ATTENTION,),
    from_original: bool = False,
    parameters: Mapping[str, Mapping[str, object]] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Try every method, with `parameters` by name where a method needs any.

    The first of the layer types is the one that is judged.
    """
    parameters = parameters or {}
    start = present.longest(layer_types[0])
    if from_original:
        start = RotarySchedule.plain(start.geometry)
    candidates: list[Candidate] = []
    refused: dict[str, str] = {}
    for done, method in enumerate(names()):
        if progress is not None:
            progress(done / len(names()))
        given = parameters.get(method, {})
        try:
            plan = extend_plan(
                present,
                target_length,
                method,
                given,
                layer_types=layer_types,
                from_original=from_original,
            )
        except InputError as error:
            refused[method] = str(error)
            continue
        candidates.append(_judge(method, given, plan, start, layer_types[0]))
    candidates.sort(key=lambda candidate: candidate.rank)
    return Comparison(target_length, tuple(candidates), refused)


def _judge(
    methods: str,
    parameters: Mapping[str, object],
    plan: ContextPlan,
    start: RotarySchedule,
    layer_type: str,
) -> Candidate:
    schedule = plan.longest(layer_type)
    length = plan.target_length
    return Candidate(
        methods,
        parameters,
        plan,
        schedule,
        decay(schedule, length),
        coverage(schedule, length, trained=start),
        _fast_stretch(schedule, start),
    )


def _fast_stretch(schedule: RotarySchedule, start: RotarySchedule) -> float:
    fast = FAST_TURNS * start.wavelengths <= start.geometry.original_length
    moved = schedule.wavelengths[fast] / start.wavelengths[fast]
    return float(np.exp(np.abs(np.log(moved)).max())) if fast.any() else 1.0
