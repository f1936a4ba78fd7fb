"""Every method at one target: its theory, and its rank by measurement.

Theory says of a schedule, before a model runs, which angles are new (coverage), at how many
distances a random key outscores a similar one (decay), and how far fast pairs are slowed. How well
methods work was measured on small models: the orders that came out, for use without training and
after it, and the shares that were retrieved, are in measured.py. `plan` without a method returns
the plans of all, ranked so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ropewalk.blocks import Block, Details, Paragraph, Title
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, MissingExtra
from ropewalk.lengths import format_length
from ropewalk.models.source import Source
from ropewalk.planning import tables
from ropewalk.planning.extension import (
    chosen_layers,
    extend_plan,
    is_formula,
    kept_parameters,
    only_the_length,
)
from ropewalk.planning.measured import (
    AFTER_TRAINING,
    FITS,
    UNCHANGED,
    WITHOUT_TRAINING,
    MeasuredMethod,
    measured,
)
from ropewalk.planning.results import Planned, described
from ropewalk.progress import Notice, Progress, share
from ropewalk.runtimes import targets
from ropewalk.scaling import named, names
from ropewalk.schedule import RotarySchedule
from ropewalk.theory.bound import silent
from ropewalk.theory.coverage import coverage
from ropewalk.theory.decay import decay
from ropewalk.theory.table import safe_base
from ropewalk.values import RESTORE, Charts, Value

if TYPE_CHECKING:
    from ropewalk.planning.request import PlanRequest


@dataclass(frozen=True, eq=False)
class MethodCandidate(Value):
    """One method's plan for the target, its ranks, and the findings of theory and measurement."""

    method: str
    parameters: Mapping[str, object]
    """The parameters that were given; the recipe of the schedule holds all of them."""
    plan: ContextPlan
    layer: str
    """The layer type that is judged."""
    effective_length: int | None
    """The distance at which a random key first outscores a similar one; None if never."""
    violations: int
    """The number of distances at which it does."""
    least_advantage: float
    out_of_distribution_pairs: int
    """The number of pairs that meet angles which the present schedule has not met."""
    fast_stretch: float
    """The factor by which the fastest quarter of the pairs turns slower; 1 if none is touched."""
    measured: tuple[MeasuredMethod, ...]
    """The method's results on small models, untrained and fine-tuned; empty if it was not tried."""
    runtimes: tuple[str, ...] | None
    """The runtimes that load the plan; None if nobody could say. Where pairs rest, methods that no
    runtime loads rank below the others."""
    from_plain: bool = False
    """True if it starts from the plain frequencies of a model that is scaled at present."""
    needs_training: bool = False
    """True if the model needs training under it to be of use: it then comes after the others."""
    rank: int | None = None
    """The rank for use without training: 1 for the first, None if the method was not measured."""
    rank_after_training: int | None = None
    """The rank for use after fine-tuning at the target length."""

    @property
    def name(self) -> str:
        """The method, and where it starts."""
        return f"{self.method} from plain" if self.from_plain else self.method

    @property
    def schedule(self) -> RotarySchedule:
        """The schedule that serves the target."""
        return self.plan.longest(self.layer)

    @property
    def refuted(self) -> bool:
        """Without training it retrieved little on most of the models that it was measured on."""
        return any(each.is_refuted for each in self.measured if not each.steps)

    @property
    def is_beyond_runtimes(self) -> bool:
        """No stock runtime expresses it for its resting pairs, as some do with other methods."""
        return bool(self.schedule.geometry.resting_pairs) and self.runtimes == ()

    @property
    def theory(self) -> str:
        """The predictions that follow from the schedule alone."""
        if self.schedule.has_no_positions:
            return "by theory, there are no positions, since no pair turns"
        new, pairs = self.out_of_distribution_pairs, self.schedule.geometry.pairs
        angles = f"{new} of {pairs} pairs meet new angles" if new else "no angle is new"
        if self.effective_length is None:
            advantage = "similar keys win at every distance"
        else:
            advantage = (
                f"similar keys lose at {self.violations:,} distance"
                f"{'s' if self.violations > 1 else ''}, first at {self.effective_length:,}"
            )
        if self.fast_stretch < 1.0005:
            fast = "fast pairs are unchanged"
        else:
            fast = f"fast pairs turn {self.fast_stretch:.3g} times slower"
        return f"by theory, {angles}, {advantage}, and {fast}"

    @property
    def reason(self) -> str:
        """The predictions of theory, and the measurements."""
        parts = ["needs training under this plan"] if self.needs_training else []
        parts += map(str, self.measured)
        if self.rank is None:
            parts.append("not measured")
        return "; ".join([self.theory, *parts]) + "."

    def derived(self) -> dict[str, object]:
        return {
            "plan_id": self.plan.id,
            "out_of_distribution_share": (
                self.out_of_distribution_pairs / self.schedule.geometry.pairs
            ),
            "attention_scaling": self.schedule.attention_scaling,
            "refuted": self.refuted,
            "reason": self.reason,
        }


class Ranking(NamedTuple):
    """All candidates, best first, and why the other methods are not among them."""

    candidates: tuple[MethodCandidate, ...]
    refused: Mapping[str, str]


def ranking_of(
    present: ContextPlan,
    target_length: int,
    *,
    layer_types: Sequence[str] | None = None,
    from_original: bool = False,
    parameters: Mapping[str, Mapping[str, object]] | None = None,
    runtimes: Callable[[ContextPlan], tuple[str, ...] | None] = lambda plan: None,
    after_training: bool = False,
    progress: Callable[[float], None] = silent,
) -> Ranking:
    """Try every method, with `parameters` by name if a method needs any.

    The first of the layer types is the one that is judged. `runtimes` says who loads a plan. The
    order is that for use without training, or that for use after it. Methods that were not
    measured come after those that were, and where pairs rest, methods that no runtime expresses
    come last.

    Where the present scaling is a formula, a method is tried on top of it and from the plain
    frequencies; plans that keep the present scaling come first.
    """
    parameters = parameters or {}
    layers = chosen_layers(present, layer_types)
    start = present.longest(layers[0])
    if from_original:
        start = RotarySchedule.plain(start.geometry)
    candidates: list[MethodCandidate] = []
    refused: dict[str, str] = {}
    listed: dict[str, str] = {}
    anew = not from_original and is_formula(start) and target_length > start.length
    ways = [(method, way) for method in names() for way in ((False, True) if anew else (False,))]
    for done, (method, from_plain) in enumerate(ways):
        progress(done / len(ways))
        chosen = parameters.get(method, {})
        if from_plain:
            chosen = {**kept_parameters(start, method), **chosen}
        try:
            plan = extend_plan(
                present,
                target_length,
                method,
                chosen,
                layer_types=layers,
                from_original=from_original or from_plain,
            )
        except InputError as error:
            refused.setdefault(method, str(error))
            continue
        schedule = plan.longest(layers[0])
        decayed = decay(schedule, target_length)
        angles = coverage(schedule, target_length, trained=start)
        # Where nothing changes, what others gained by the method says nothing.
        unchanged = only_the_length(present, plan)
        candidates.append(
            MethodCandidate(
                method=method,
                parameters=chosen,
                plan=plan,
                layer=layers[0],
                effective_length=decayed.effective_length,
                violations=decayed.violations,
                least_advantage=decayed.least,
                out_of_distribution_pairs=len(angles.out_of_distribution),
                fast_stretch=_fast_stretch(start, schedule),
                measured=() if unchanged else _measured(method, target_length / start.length),
                runtimes=runtimes(plan),
                from_plain=from_plain,
                needs_training=named(method).needs_training and not start.has_no_positions,
            )
        )
        fits = unchanged and not angles.out_of_distribution
        listed[candidates[-1].name] = FITS if fits else UNCHANGED if unchanged else method
    trained, untrained = (
        _ranks(candidates, listed, order) for order in (AFTER_TRAINING, WITHOUT_TRAINING)
    )
    by_name = {each.name: each for each in candidates}
    ranked = [
        replace(by_name[name], rank=untrained[name], rank_after_training=trained[name])
        for name in (trained if after_training else untrained)
    ]
    planned = {each.method for each in ranked}
    return Ranking(
        tuple(ranked), {name: why for name, why in refused.items() if name not in planned}
    )


def _ranks(
    candidates: Sequence[MethodCandidate], listed: Mapping[str, str], order: Sequence[str]
) -> dict[str, int | None]:
    """The rank of each candidate by its name, the first one first; None if it is not in the order.

    `listed` says by which name of the order a candidate is known.
    """
    positions = {name: place for place, name in enumerate(order)}

    def key(each: MethodCandidate) -> tuple[bool, bool, bool, bool, int]:
        place = positions.get(listed[each.name])
        last = each.needs_training, each.from_plain
        return each.is_beyond_runtimes, place is None, *last, place or 0

    names = [each.name for each in sorted(candidates, key=key)]
    measured = [name for name in names if listed[name] in positions]
    return {name: measured.index(name) + 1 if name in measured else None for name in names}


def _fast_stretch(start: RotarySchedule, schedule: RotarySchedule) -> float:
    """The geometric mean of the factors of the fastest quarter of the pairs that turn."""
    turning = start.geometry.turning_pairs
    fast = (schedule.rescale_factors / start.rescale_factors)[: max(1, turning // 4)]
    return float(np.exp(np.log(fast).mean()))


def _measured(method: str, scale: float) -> tuple[MeasuredMethod, ...]:
    both = (measured(method, scale, trained=trained) for trained in (False, True))
    return tuple(each for each in both if each is not None)


@dataclass(frozen=True, eq=False)
class Comparison(Planned):
    """The plans of all methods for one model and target; its own plan is that of the best."""

    rows_in = "candidates"
    never_empty = ("candidates", "layers")

    candidates: tuple[MethodCandidate, ...] = field(kw_only=True)
    """At least one, best first."""
    refused: Mapping[str, str] = field(kw_only=True)
    """The reason for each method that is not a candidate."""
    after_training: bool = field(kw_only=True)
    """True if the order is that for use after fine-tuning at the target length."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan != self.best.plan:
            raise InvalidValue("plan", self.plan.id, "must be the best candidate's", RESTORE)

    @property
    def best(self) -> MethodCandidate:
        """The candidate that ranks first. Let an evaluation decide."""
        return self.candidates[0]

    @property
    def use(self) -> str:
        """The use that the order is for."""
        return "after training" if self.after_training else "without training"

    @property
    def base_is_safe(self) -> bool:
        return self.best.method == "base_change"

    def derived(self) -> dict[str, object]:
        return {**super().derived(), "best": self.best.name}

    def summary(self) -> str:
        lead = f"{self.documented} " if self.documented else ""
        trained, nothing = self.present.longest(self.layers[0]).length, self.changes_nothing
        if nothing and self.target_length < trained:
            return f"{lead}{nothing}"
        refused = f" Not among them: {', '.join(self.refused)}." if self.refused else ""
        if self.target_length == self.present.target_length:
            lead += f"{self.serves_already} "
        return (
            f"{lead}Of {len(self.candidates)} plans that take {self.model} from "
            f"{format_length(trained)} to {format_length(self.target_length)}, "
            f"{self.best.method} ranks first for use {self.use}: {self.best.reason}"
            f"{refused}{f' {nothing}' if nothing else ''}"
        )

    def blocks(self) -> Iterator[Block]:
        yield Title(self.model, f" to {format_length(self.target_length)}")
        if self.documented:
            yield Paragraph(self.documented, "verdict")
        yield tables.ranking(self.candidates, {row.runtime for row in self.serving}, (*targets(),))
        if any(candidate.from_plain for candidate in self.candidates):
            present = self.present.longest(self.layers[0]).method
            yield Paragraph(
                "from plain: ranks after the others, since the model's training under "
                f"{present} is not carried over"
            )
        yield Details(tuple(tables.by_theory(self.candidates, self.refused)))
        yield from self.charts()
        suggested = (
            f"Suggested {self.use}: {self.best.name} (a prediction, not measured on this model: "
            "`ropewalk evaluate` and `ropewalk extend` measure it)"
        )
        yield Paragraph(self.changes_nothing or suggested, "verdict")
        yield from self.to_serve()

    def charts(self) -> Charts:
        """The rescale factors of all candidates."""
        from ropewalk.planning.tables import by_step, factors

        plans = {candidate.name: candidate.plan for candidate in self.candidates}
        title = f"{self.model} to {format_length(self.target_length)}"
        return [factors(by_step(plans, self.layers[0]), title)]


def compared(request: PlanRequest, progress: Progress, notice: Notice) -> Comparison:
    """Plan with every method, and rank the plans."""
    source, present = request.source, request.source.present_plan
    bases, refused = _safe_base(request, share(progress, "safe base for " + request.length))
    candidates, others = ranking_of(
        present,
        request.target,
        layer_types=request.chosen,
        from_original=request.from_original,
        parameters=bases,
        after_training=request.after_training,
        runtimes=lambda plan: _loadable_by(plan, source),
        progress=share(progress, "comparing"),
    )
    refused = {**others, **refused}
    if not candidates:
        causes = [*refused.values()]
        raise InputError(
            f"{source.name}: no method plans for {request.length}: {max(causes, key=causes.count)}"
        )
    for text in _warnings(candidates, source.name, after_training=request.after_training):
        notice(text)
    return Comparison(
        **described(source, candidates[0].plan, request.chosen),
        candidates=candidates,
        refused=refused,
        after_training=request.after_training,
    )


def _safe_base(
    request: PlanRequest, progress: Callable[[float], None]
) -> tuple[dict[str, dict[str, object]], dict[str, str]]:
    """The parameter that `base_change` needs; or, by method, why there is none."""
    try:
        base = sufficient_base(
            request.source.present_plan,
            request.target,
            request.chosen[0],
            from_original=request.from_original,
            progress=progress,
        )
    except (MissingExtra, InvalidValue) as error:  # the other methods need no base
        return {}, {"base_change": str(error)}
    return {"base_change": {"base": base}}, {}


def _warnings(
    candidates: Sequence[MethodCandidate], name: str, *, after_training: bool
) -> Iterator[str]:
    """The candidates that no runtime can load, and what is known against the first."""
    first = candidates[0]
    if behind := [each.method for each in candidates if each.is_beyond_runtimes]:
        geometry = first.schedule.geometry
        yield (
            f"{name}: {geometry.resting_pairs} of {geometry.pairs} pairs do not rotate (frequency "
            f"0), which no stock runtime can combine with {', '.join(behind)}, so these rank last"
        )
    for result in first.measured:
        if result.is_refuted and (not result.steps or after_training):
            when = "only after fine-tuning under this plan: " if not result.steps else ""
            yield f"{when if after_training else ''}{result.warning}"


def _loadable_by(plan: ContextPlan, source: Source) -> tuple[str, ...] | None:
    from ropewalk.runtimes import features, llama_cpp

    if source.kind == "GGUF file":
        return llama_cpp.loadable_by(plan, source.header)
    return features.loadable_by(plan, source.config)


LONGEST = 2**20
"""The longest length that a base is sought for, where the table ends for most sizes of heads. The
time grows with the square of the length."""


def sufficient_base(
    present: ContextPlan,
    target_length: int,
    layer_type: str,
    *,
    from_original: bool = False,
    progress: Callable[[float], None] = silent,
) -> float:
    """A base that the length is safe with, rounded up to three digits; never below the present."""
    if target_length > LONGEST:
        raise InvalidValue(
            "base",
            None,
            f"must be given beyond {format_length(LONGEST)}: to find a safe one takes hours",
            "choose one; `ropewalk bound` finds it",
        )
    schedule = present.longest(layer_type)
    geometry, turning = schedule.geometry, schedule.geometry.without_resting_pairs
    safe = safe_base(
        turning.head_dim, target_length, rotary_dim=turning.rotary_dim, progress=progress
    )
    # The same frequencies, over the whole head again.
    needed = safe.value ** (geometry.rotary_dim / turning.rotary_dim)
    now = geometry.base if from_original else schedule.geometric_base
    return max(_rounded_up(needed), now or geometry.base)


def _rounded_up(base: float, digits: int = 3) -> float:
    """Every base above a safe one is safe, so rounding up costs nothing."""
    unit = 10.0 ** (math.floor(math.log10(base)) + 1 - digits)
    return math.ceil(base / unit) * unit
