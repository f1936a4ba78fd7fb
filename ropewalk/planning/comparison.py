"""Every method at one target, judged by theory alone and ranked for use without training.

Three things can be said of a schedule before a model runs:

1. new angles: pairs that training never turned so far (coverage) fail at once without fine-tuning;
2. violations: distances where a random key outscores a similar one (decay) cannot be trained away;
3. fast pairs: those carry local order, and the further λ moves them, the more has to be relearnt.

Methods that leave the fast pairs alone and meet no new angle, as YaRN does, come first; then the
others, by new angles, attention scaling, violations and fast pairs; and last those that their
sources train with. It is a starting order, and measured on no model; evaluation has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError
from ropewalk.planning.extension import chosen_layers, extend_plan
from ropewalk.scaling import named, names
from ropewalk.schedule import RotarySchedule
from ropewalk.theory.coverage import coverage
from ropewalk.theory.decay import decay
from ropewalk.values import Value

FAST_TURNS = 32
"""A pair is fast if it turns this often in the original length (YaRN's beta_fast)."""


@dataclass(frozen=True, eq=False)
class Candidate(Value):
    """One method's plan for the target, and what the theory says of it."""

    method: str
    parameters: Mapping[str, object]
    """Those that were given; the recipe of the schedule holds all of them."""
    plan: ContextPlan
    layer: str
    """The layer type that is judged."""
    effective_length: int | None
    """Where a random key first outscores a similar one; None if nowhere."""
    violations: int
    """At how many distances it does."""
    least_advantage: float
    out_of_distribution_pairs: int
    """How many pairs meet angles that the present schedule has not met."""
    fast_stretch: float
    """By how much the most affected fast pair turns slower than before; 1 if none is touched."""
    runtimes: tuple[str, ...] | None
    """Those that load the plan; None where nobody could say."""

    @property
    def schedule(self) -> RotarySchedule:
        """The one that serves the target."""
        return self.plan.longest(self.layer)

    @property
    def needs_training(self) -> bool:
        """The method's source trains the model with it."""
        return named(self.method).needs_training

    @property
    def keeps_fast_pairs(self) -> bool:
        return self.fast_stretch < 1.0005

    @property
    def rank(self) -> tuple[bool, bool, int, float, int, float]:
        """Smaller is better."""
        new, moved = self.out_of_distribution_pairs, not self.keeps_fast_pairs
        # More keys dilute attention; a scaling above 1, as YaRN's, makes up for it.
        sharpened = -self.schedule.attention_scaling
        return (
            *(self.needs_training, new > 0 or moved, new),
            *(sharpened, self.violations, self.fast_stretch),
        )

    @property
    def reason(self) -> str:
        """The three points, and whether it needs training."""
        new, pairs = self.out_of_distribution_pairs, self.schedule.geometry.pairs
        angles = f"{new} of {pairs} pairs meet new angles" if new else "no angle is new"
        if self.effective_length is None:
            advantage = "similar keys win at every distance"
        else:
            advantage = (
                f"similar keys lose at {self.violations:,} distances, "
                f"first at {self.effective_length:,}"
            )
        if self.keeps_fast_pairs:
            fast = "fast pairs stay as they are"
        else:
            fast = f"fast pairs turn up to {self.fast_stretch:.3g} times slower"
        training = "needs training: " if self.needs_training else ""
        return f"{training}{angles}, {advantage}, and {fast}."

    def derived(self) -> dict[str, object]:
        return {
            "plan_id": self.plan.id,
            "out_of_distribution_share": (
                self.out_of_distribution_pairs / self.schedule.geometry.pairs
            ),
            "attention_scaling": self.schedule.attention_scaling,
            "needs_training": self.needs_training,
            "reason": self.reason,
        }


class Ranking(NamedTuple):
    """All candidates, best first, and why the other methods are not among them."""

    candidates: tuple[Candidate, ...]
    refused: Mapping[str, str]


def compare(
    present: ContextPlan,
    target_length: int,
    *,
    layer_types: Sequence[str] | None = None,
    from_original: bool = False,
    parameters: Mapping[str, Mapping[str, object]] | None = None,
    runtimes: Callable[[ContextPlan], tuple[str, ...]] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Ranking:
    """Try every method, with `parameters` by name where a method needs any.

    The first of the layer types is the one that is judged. `runtimes` says who loads a plan.
    """
    parameters = parameters or {}
    layers = chosen_layers(present, layer_types)
    start = present.longest(layers[0])
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
                layer_types=layers,
                from_original=from_original,
            )
        except InputError as error:
            refused[method] = str(error)
            continue
        schedule = plan.longest(layers[0])
        found = decay(schedule, target_length)
        angles = coverage(schedule, target_length, trained=start)
        candidates.append(
            Candidate(
                method=method,
                parameters=given,
                plan=plan,
                layer=layers[0],
                effective_length=found.effective_length,
                violations=found.violations,
                least_advantage=found.least,
                out_of_distribution_pairs=len(angles.out_of_distribution),
                fast_stretch=_fast_stretch(schedule, start),
                runtimes=None if runtimes is None else runtimes(plan),
            )
        )
    candidates.sort(key=lambda candidate: candidate.rank)
    return Ranking(tuple(candidates), refused)


def _fast_stretch(schedule: RotarySchedule, start: RotarySchedule) -> float:
    fast = FAST_TURNS * start.wavelengths <= start.geometry.original_length
    moved = schedule.wavelengths[fast] / start.wavelengths[fast]
    return float(np.exp(np.abs(np.log(moved)).max())) if fast.any() else 1.0
