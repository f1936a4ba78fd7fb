"""Each stock runtime's support of each part of a plan: the matrix behind `export --dry-run`.

A plan is taken apart into features: how its pairs turn, what scales attention, what depends on
position or length. For each, a runtime computes exactly that (`exact`), the same numbers under
another name (`equivalent`), something near it that must be allowed explicitly (`approximated`), or
nothing of the kind (`refused`). Where nobody can say, that stands there too (`unknown`).

transformers and llama.cpp were found by running them; vLLM and SGLang by running the rotary modules
of their released wheels, and by reading what each model class hands to them (model_classes.py,
tools/observatory). Only an export proves that a runtime does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ropewalk.context_plan import SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import RopewalkError
from ropewalk.gguf import settings
from ropewalk.models.config import Config, ConfigReader, present_plan
from ropewalk.models.stock_config import is_dynamic, rope_parameters, two_lists
from ropewalk.runtimes import targets
from ropewalk.schedule import LogN, RotarySchedule
from ropewalk.values import Value

Fit = Literal["exact", "equivalent", "approximated", "refused", "unknown"]

LEFT_OUT = "left out"
ITS_MEAN = "its mean over the target, at every position"
LONGEST = "the longest schedule at every length"
BY_SERVER = "two lists, by the server's --max-model-len"
WHOLE_BASE = "the base, cut to a whole number"
AS_WRITTEN = "the export as a whole"
DYNAMIC = "dynamic NTK"
NO_FACTORS = "the nearest base, one factor or YaRN: its graph of this architecture takes no factors"


# Their attention in transformers is not told the positions of its queries.
_WITHOUT_POSITIONS = {"llama4_text"}


@dataclass(frozen=True, eq=False)
class Support(Value):
    """One runtime's support of one feature."""

    fit: Fit
    how: str = ""

    def __str__(self) -> str:
        return f"{self.fit} ({self.how})" if self.how else self.fit


EXACT = Support("exact")
Matrix = dict[str, dict[str, Support]]
"""By feature and runtime."""


class Feature(NamedTuple):
    """A part of a plan that a runtime has to express."""

    name: str
    kind: Literal["turning", "attention", "softmax", "growth", "switching"]
    setting: Mapping[str, object]
    """The stock setting of the layers that it is a part of."""
    plan: ContextPlan
    config: Config
    nested: bool = False
    """True if the config says it by layer type."""

    @property
    def rope_type(self) -> str:
        return str(self.setting["rope_type"])


def matrix(plan: ContextPlan, config: Config) -> Matrix:
    """Every feature that the plan uses, in every runtime that exports are written for.

    What cannot be written, or would be misread as a whole, has a row of its own.
    """
    columns = {name: each.support_of(plan, config) for name, each in targets().items()}
    rows = {
        feature: {name: column[feature] for name, column in columns.items()}
        for feature in next(iter(columns.values()))
    }
    if set(map(str, rows[AS_WRITTEN].values())) == {"exact"}:
        del rows[AS_WRITTEN]
    return rows


def features_of(plan: ContextPlan, config: Config) -> dict[str, Feature | Support]:
    """The parts of a plan by name; of a part that is alike in every runtime, its support."""
    settings, nested = _settings(nearest_in_stock(plan, config), config)
    schedules = [step.schedule for steps in plan.schedules.values() for step in steps]
    parts = []
    for setting in settings:
        parts.append(Feature(_turning(setting), "turning", setting, plan, config, nested))
        if any(schedule.attention_scaling != 1 for schedule in schedules):
            parts.append(Feature("attention scaling", "attention", setting, plan, config))
        if any(schedule.softmax_scaling != 1 for schedule in schedules):
            parts.append(Feature("softmax scaling", "softmax", setting, plan, config))
    return {**{each.name: each for each in parts}, **_beside_the_factors(plan, config)}


def loadable_by(plan: ContextPlan, config: Config) -> tuple[str, ...]:
    """The runtimes that can follow the plan; none if no stock config can express it."""
    try:
        rows = matrix(plan, config)
    except RopewalkError:
        return ()
    return tuple(
        name
        for name, runtime in targets().items()
        if all(runtime.follows_by(feature, row[name]) for feature, row in rows.items())
    )


def without_approximated(plan: ContextPlan, supports: Mapping[str, Support]) -> ContextPlan:
    """One schedule a layer type, without what a runtime approximates in it."""
    longest = {name: steps[-1:] for name, steps in plan.schedules.items()}
    how = {each.how for each in supports.values() if each.fit == "approximated"}
    if WHOLE_BASE in how:
        longest = {name: (_with_whole_base(step),) for name, (step,) in longest.items()}
    if NO_FACTORS in how:
        windows = SLIDING_ATTENTION in longest  # whose attention would be scaled as well
        longest = {
            name: (_without_factors(step, own_attention=windows),)
            for name, (step,) in longest.items()
        }
    return replace(plan, schedules=longest)


def _with_whole_base(step: PlanStep) -> PlanStep:
    """The same step, if its factors are another base, with that base cut to a whole number."""
    schedule = step.schedule
    geometry, base = schedule.geometry, schedule.geometric_base
    if base is None:
        return step
    cut = replace(geometry, base=float(int(base)))
    factors = geometry.factors_of(cut.plain_frequencies)
    return replace(step, schedule=replace(schedule, rescale_factors=factors, recipe=()))


def _without_factors(step: PlanStep, *, own_attention: bool) -> PlanStep:
    """The nearest step that needs no factor for each pair."""
    if step.schedule.geometric_base is not None:
        return step
    nearest = settings.expressible(step.schedule, own_attention=own_attention)
    return replace(step, schedule=nearest)


def nearest_in_stock(plan: ContextPlan, config: Config) -> ContextPlan:
    """The nearest plan that stock transformers has."""
    return (plan if is_dynamic(plan) else approximation(plan, config)).approximating(plan)


def approximation(plan: ContextPlan, config: Config) -> ContextPlan:
    """The nearest plan of one schedule a layer type, without n̂ and log-n.

    The growth of queries that the model was trained with stays: its own code computes it. Two
    schedules that change at the original length stay: stock transformers has two as well.
    """
    nearest, trained = {}, _own_log_n(config)
    for layer_type, steps in plan.schedules.items():
        kept = trained.get(layer_type)
        plain = tuple(replace(step, schedule=_without_extras(step, kept)) for step in steps)
        nearest[layer_type] = plain if two_lists(steps) else plain[-1:]
    return replace(plan, schedules=nearest)


def _own_log_n(config: Config) -> dict[str, LogN | None]:
    """The scaling of queries by position in the model's own code, by layer type."""
    present = present_plan(config)
    return {layer_type: steps[-1].schedule.log_n for layer_type, steps in present.schedules.items()}


def _without_extras(step: PlanStep, trained: LogN | None) -> RotarySchedule:
    """Without n̂; log-n other than the model's own as its average, inside the attention scaling."""
    schedule = replace(step.schedule, kept_initial_positions=0)
    if schedule.log_n is None or schedule.log_n == trained:
        return schedule
    attention = schedule.attention_scaling * schedule.log_n.mean_scaling(step.up_to_length) ** 0.5
    return replace(schedule, log_n=None, attention_scaling=attention)


def _settings(plan: ContextPlan, config: Config) -> tuple[list[Mapping[str, object]], bool]:
    """The stock setting of each layer type, and whether the config has one for each."""
    written = rope_parameters(plan, config)
    nested: list[Mapping[str, object]] = [v for v in written.values() if isinstance(v, Mapping)]
    return (nested, True) if nested else ([written], False)


def _turning(setting: Mapping[str, object]) -> str:
    """The name of the rotation, by the rope type that a stock config needs for it."""
    kind = str(setting["rope_type"])
    if kind == "proportional":  # a name of its own: other layer types may have the plain one
        name = "another base" if setting.get("factor", 1) == 1 else "linear"
        return f"{name}, with resting pairs"
    named = {"default": "another base", "dynamic": DYNAMIC, "yarn": "YaRN"}
    return kind if kind in ("linear", "llama3") else named.get(kind, "factors by pair")


def _beside_the_factors(plan: ContextPlan, config: Config) -> dict[str, Feature | Support]:
    """The parts that depend on the position or on the length of a sequence."""
    parts: dict[str, Feature | Support] = {}
    steps = [step for by_length in plan.schedules.values() for step in by_length]
    if any(step.schedule.kept_initial_positions for step in steps):
        parts["kept initial positions"] = Support("approximated", LEFT_OUT)
    trained = _own_log_n(config)
    log_ns = {
        (step.schedule.log_n, trained.get(layer_type))
        for layer_type, by_length in plan.schedules.items()
        for step in by_length
        if step.schedule.log_n is not None
    }
    if any(planned != pretrained for planned, pretrained in log_ns):
        parts["log-n"] = Support("approximated", ITS_MEAN)
        if ConfigReader(config).model_type in _WITHOUT_POSITIONS:
            why = "its attention gets no positions, so its mean has no known cost"
            parts["log-n"] = Support("refused", why)
    if any(planned == pretrained for planned, pretrained in log_ns):
        parts["query growth"] = Feature("query growth", "growth", {}, plan, config)
    if any(len(by_length) > 1 for by_length in plan.schedules.values()) and not is_dynamic(plan):
        parts["switching by length"] = Feature("switching by length", "switching", {}, plan, config)
    return parts
