"""What each stock runtime makes of each part of a plan: the matrix behind `export --dry-run`.

A plan is taken apart into features: how its pairs turn, what scales attention, what depends on
position or length. For each, a runtime computes exactly that (`exact`), the same numbers under
another name (`equivalent`), something near it that must be allowed explicitly (`approximated`), or
nothing of the kind (`refused`). Where nobody can say, that stands there too (`unknown`).

transformers and llama.cpp were found by running them; vLLM and SGLang by running the rotary modules
of their released wheels, and by reading what each model class hands to them (model_classes.py,
tests/external). Only an export proves that a runtime does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InvalidValue, RopewalkError, UnknownName, Unsupported
from ropewalk.exporting.model_classes import (
    ENGINE_NAMES,
    GROWTH_BESIDE,
    GROWTH_IN_ROPE,
    model_class,
)
from ropewalk.gguf import settings
from ropewalk.gguf.families import family, family_names, followed_by, rotation_of
from ropewalk.gguf.rotation import LLAMA_CPP_FACTORS
from ropewalk.gguf.settings import NoFactors
from ropewalk.models.config import Config, ConfigReader, present_plan, text_config
from ropewalk.models.stock_config import rope_parameters, with_part
from ropewalk.schedule import LogN, RotaryGeometry, RotarySchedule
from ropewalk.values import Value

RUNTIMES = ("transformers", "vllm", "sglang", "llama.cpp")
Fit = Literal["exact", "equivalent", "approximated", "refused", "unknown"]

# PhimoeRotaryEmbedding asks for its frequencies anew in each forward, and gives no length.
_SHORT_LIST_ONLY = {"phimoe"}

LEFT_OUT = "left out"
ITS_MEAN = "its mean over the target, at every position"
LONGEST = "the longest schedule at every length"
WHOLE_BASE = "the base, cut to a whole number"
ON_GPU = "on a GPU; on a CPU with AMX its class drops the scaling"
NO_FACTORS = "the nearest base, one factor or YaRN: its graph of this architecture takes no factors"


@dataclass(frozen=True, eq=False)
class Cell(Value):
    """What one runtime makes of one feature, and how."""

    fit: Fit
    how: str = ""

    def __str__(self) -> str:
        return f"{self.fit} ({self.how})" if self.how else self.fit


EXACT = Cell("exact")
Matrix = dict[str, dict[str, Cell]]
"""Cells by feature and runtime."""


def matrix(plan: ContextPlan, config: Config) -> Matrix:
    """Every feature that the plan uses, in every runtime."""
    followed = plan if is_dynamic(plan) else approximation(plan, config)
    settings, nested = _settings(followed, config)
    rows: Matrix = {}
    for setting in settings:
        rows |= _by_class(_turning(setting, plan, config), setting, config, nested)
        rows |= _attention(setting, plan, config)
    rows |= _beside_the_factors(plan, config)
    return rows


def check_plan(plan: ContextPlan, config: Config, source: str) -> None:
    """A plan of another model would be written, and proven, and useless."""
    present = present_plan(config, source)
    for layer_type, steps in plan.schedules.items():
        if layer_type not in present.schedules:
            continue  # named when the config is written
        _check_kept(layer_type, steps)
        own = present.longest(layer_type).geometry
        planned = replace(steps[-1].schedule.geometry, original_length=own.original_length)
        if planned != own:
            raise InvalidValue(
                f"plan.schedules.{layer_type}",
                _differs(planned, own),
                f"the plan was made for another model: this one has {_differs(own, planned)}",
                "create the plan from this model's config",
            )


def _check_kept(layer_type: str, steps: tuple[PlanStep, ...]) -> None:
    """Kept initial positions that reach as far as the plan leave nothing to rescale."""
    for step in steps:
        kept = step.schedule.kept_initial_positions
        if kept >= step.up_to_length:
            raise InvalidValue(
                f"plan.schedules.{layer_type}.kept_initial_positions",
                kept,
                f"keeps all of the {step.up_to_length} positions that the schedule serves, so that "
                "none is rescaled",
                "plan with fewer",
            )


def _differs(geometry: RotaryGeometry, other: RotaryGeometry) -> str:
    """What of a geometry another one has not."""
    parts = {
        f"heads of {geometry.head_dim}": geometry.head_dim == other.head_dim,
        f"{geometry.rotary_dim} turning dimensions": geometry.rotary_dim == other.rotary_dim,
        f"base {geometry.base:g}": geometry.base == other.base,
        f"{geometry.resting_pairs} resting pairs": geometry.resting_pairs == other.resting_pairs,
        f"{geometry.pair_layout} pairs": geometry.pair_layout == other.pair_layout,
    }
    return ", ".join(part for part, same in parts.items() if not same)


def loadable_by(plan: ContextPlan, config: Config) -> tuple[str, ...]:
    """The runtimes that can follow the plan; none if no stock config can say it.

    transformers counts for dynamic NTK, which it has under that name, though its cached decoding
    is not that of the plan.
    """
    try:
        rows = matrix(plan, config)
    except RopewalkError:
        return ()
    return tuple(
        runtime
        for runtime in RUNTIMES
        if all(
            cells[runtime].fit in ("exact", "equivalent")
            or (feature == "dynamic NTK" and runtime == "transformers")
            for feature, cells in rows.items()
        )
    )


def expressible(
    plan: ContextPlan, config: Config, runtime: str, *, approximate: bool
) -> tuple[ContextPlan, tuple[str, ...]]:
    """The plan that the runtime can be made to follow, and what of the given one it is not.

    Refused by name: what the runtime has nothing for, and, without `approximate`, what it only has
    something near.
    """
    if runtime not in RUNTIMES:
        raise UnknownName("runtime", runtime, RUNTIMES)
    near = []
    for feature, cells in matrix(plan, config).items():
        cell = cells[runtime]
        if cell.fit == "refused":
            raise Unsupported(f"{runtime}: {feature} is refused: {cell.how}")
        if cell.fit == "approximated":
            near.append(f"{feature}: {cell.how}")
    if not near:
        return plan, ()
    if not approximate:
        raise Unsupported(
            f"{runtime} can only approximate this plan ({'; '.join(near)}); allow that "
            "(`approximate`) to export the approximation with its measured cost, or create a plan "
            "without it"
        )
    if runtime == "transformers":
        return (plan if is_dynamic(plan) else approximation(plan, config)), tuple(near)
    nearest = approximation(plan, config)
    longest = {name: steps[-1:] for name, steps in nearest.schedules.items()}
    if any(WHOLE_BASE in said for said in near):
        longest = {name: (_with_whole_base(step),) for name, (step,) in longest.items()}
    if any(NO_FACTORS in said for said in near):
        windows = SLIDING_ATTENTION in longest  # whose attention would be scaled as well
        longest = {
            name: (_without_factors(step, own_attention=windows),)
            for name, (step,) in longest.items()
        }
    return replace(nearest, schedules=longest), tuple(near)


def untold(plan: ContextPlan, config: Config, runtime: str) -> tuple[str, ...]:
    """What nobody can say of a runtime and this plan."""
    cells = (row[runtime] for row in matrix(plan, config).values())
    return tuple(dict.fromkeys(cell.how for cell in cells if cell.fit == "unknown"))


def _with_whole_base(step: PlanStep) -> PlanStep:
    """The same step, where its factors are another base, with that base cut to a whole number."""
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


def approximation(plan: ContextPlan, config: Config) -> ContextPlan:
    """The nearest plan of one schedule a layer type, without n̂ and log-n.

    The growth of queries that the model was trained with stays: its own code computes it. Two
    schedules that change at the original length stay: stock transformers has two as well.
    """
    nearest, own = {}, _own_log_n(config)
    for layer_type, steps in plan.schedules.items():
        kept = own.get(layer_type)
        plain = tuple(replace(step, schedule=_without_extras(step, kept)) for step in steps)
        nearest[layer_type] = plain if _two_lists(steps) else plain[-1:]
    return replace(plan, schedules=nearest)


def _own_log_n(config: Config) -> dict[str, LogN | None]:
    """How the model's own code scales queries by position, by layer type."""
    present = present_plan(config)
    return {layer_type: steps[-1].schedule.log_n for layer_type, steps in present.schedules.items()}


def _without_extras(step: PlanStep, own: LogN | None) -> RotarySchedule:
    """Without n̂; log-n other than the model's own as its average, inside the attention scaling."""
    schedule = replace(step.schedule, kept_initial_positions=0)
    if schedule.log_n is None or schedule.log_n == own:
        return schedule
    attention = schedule.attention_scaling * schedule.log_n.mean_scaling(step.up_to_length) ** 0.5
    return replace(schedule, log_n=None, attention_scaling=attention)


def _two_lists(steps: tuple[PlanStep, ...]) -> bool:
    return (
        len(steps) == 2
        and steps[0].up_to_length == steps[0].schedule.geometry.original_length
        and steps[0].schedule.attention_scaling == steps[1].schedule.attention_scaling
    )


def is_dynamic(plan: ContextPlan) -> bool:
    """Whether it is a ladder of dynamic NTK, which transformers has under that name."""
    return any(
        len(steps) > 1 and [step.method for step in steps[-1].schedule.recipe] == ["dynamic_ntk"]
        for steps in plan.schedules.values()
    )


def _settings(plan: ContextPlan, config: Config) -> tuple[list[Mapping[str, object]], bool]:
    """What a stock config says of each layer type, and whether it says it by layer type."""
    written = rope_parameters(plan, config)
    nested: list[Mapping[str, object]] = [v for v in written.values() if isinstance(v, Mapping)]
    return (nested, True) if nested else ([written], False)


def _row(**cells: Cell) -> dict[str, Cell]:
    return {runtime: cells[runtime.replace(".", "_")] for runtime in RUNTIMES}


def _turning(setting: Mapping[str, object], plan: ContextPlan, config: Config) -> Matrix:
    """How the pairs turn, by the rope type that a stock config needs for it."""
    kind = str(setting["rope_type"])
    if kind == "default":
        return {"another base": _row(transformers=EXACT, vllm=EXACT, sglang=EXACT, llama_cpp=EXACT)}
    if kind == "linear":
        return {"linear": _row(transformers=EXACT, vllm=EXACT, sglang=EXACT, llama_cpp=EXACT)}
    if kind == "dynamic":
        elsewhere = Cell("approximated", LONGEST)
        here = Cell("approximated", "cached keys keep their former rotation")
        return {
            "dynamic NTK": _row(
                transformers=here, vllm=elsewhere, sglang=elsewhere, llama_cpp=elsewhere
            )
        }
    factors = _llama_cpp_factors(plan, config)
    if kind == "proportional":  # a name of its own: other layer types may have the plain one
        name = "another base" if setting.get("factor", 1) == 1 else "linear"
        row = _row(transformers=EXACT, vllm=EXACT, sglang=EXACT, llama_cpp=factors)
        return {f"{name}, with resting pairs": row}
    if kind == "llama3":
        return {"llama3": _row(transformers=EXACT, vllm=EXACT, sglang=EXACT, llama_cpp=factors)}
    if kind == "yarn":
        return {
            "YaRN": _row(
                transformers=EXACT,
                vllm=EXACT,
                sglang=EXACT,
                llama_cpp=EXACT if factors.fit == "refused" and _is_own_yarn(setting) else factors,
            )
        }
    longrope = Cell("equivalent", "longrope with equal lists")
    served = dict.fromkeys(ENGINE_NAMES, longrope)
    if ConfigReader(config).geometry(dict(setting), 1).pair_layout == "interleaved":
        why = "its longrope supports only half-split pairs, and these are interleaved"
        served = {
            engine: longrope
            if model_class(config, engine).scaling == "transformers"  # whose code turns the pairs
            else Cell("refused", why)
            for engine in ENGINE_NAMES
        }
    return {"factors by pair": _row(transformers=longrope, llama_cpp=factors, **served)}


def _by_class(rows: Matrix, setting: Mapping[str, object], config: Config, nested: bool) -> Matrix:
    """The same, as far as the model's class in an engine hands the setting on."""
    own: dict[str, Cell] = {}
    on_gpu: set[str] = set()
    for engine in ENGINE_NAMES:
        served = model_class(config, engine)
        if served.kept and not nested:  # an export writes these
            inner = {**text_config(config), **served.written_beside(dict(setting))}
            path = ConfigReader(config).path
            served = model_class(with_part(config, path, inner), engine)
        if served.scaling == "unknown" and setting["rope_type"] != "default":
            own[engine] = Cell("unknown", f"what {served} hands to its rotary module is not known")
        elif why := served.refusal(dict(setting), nested=nested):
            own[engine] = Cell("refused", why)
        elif served.cuts(setting["rope_theta"]):
            own[engine] = Cell("approximated", WHOLE_BASE)
        elif served.on_cpu and setting["rope_type"] != "default":
            on_gpu.add(engine)
    return {
        feature: {
            **{
                runtime: Cell(cell.fit, ON_GPU) if runtime in on_gpu else cell
                for runtime, cell in cells.items()
            },
            **own,
        }
        for feature, cells in rows.items()
    }


def _attention(setting: Mapping[str, object], plan: ContextPlan, config: Config) -> Matrix:
    """What multiplies cos and sin, and what multiplies logits outside them."""
    rows: Matrix = {}
    schedules = [step.schedule for steps in plan.schedules.values() for step in steps]
    if any(schedule.attention_scaling != 1 for schedule in schedules):
        vllm = Cell("exact", "attention_factor, short_mscale and long_mscale")
        sglang = Cell("exact", "attn_factor, short_mscale and long_mscale")
        rows["attention scaling"] = _row(
            transformers=Cell("exact", "attention_factor"),
            vllm=vllm,
            sglang=sglang,
            llama_cpp=_llama_cpp_attention(setting, plan, config),
        )
    if any(schedule.softmax_scaling != 1 for schedule in schedules):
        mine = Cell("exact", "mscale_all_dim") if setting["rope_type"] == "yarn" else None
        rows["softmax scaling"] = _row(
            transformers=Cell("exact", "mscale_all_dim"),
            vllm=mine or Cell("refused", "it reads mscale_all_dim only with YaRN"),
            sglang=mine or Cell("refused", "it reads mscale_all_dim only with YaRN"),
            llama_cpp=Cell("refused", "no exported file can express it"),
        )
    return rows


def _beside_the_factors(plan: ContextPlan, config: Config) -> Matrix:
    """What depends on the position or on the length of a sequence."""
    rows: Matrix = {}
    steps = [step for own in plan.schedules.values() for step in own]
    if any(step.schedule.kept_initial_positions for step in steps):
        rows["kept initial positions"] = _everywhere(Cell("approximated", LEFT_OUT))
    trained = _own_log_n(config)
    log_ns = {
        (step.schedule.log_n, trained.get(layer_type))
        for layer_type, own in plan.schedules.items()
        for step in own
        if step.schedule.log_n is not None
    }
    if any(planned != own for planned, own in log_ns):
        rows["log-n"] = _everywhere(Cell("approximated", ITS_MEAN))
    if any(planned == own for planned, own in log_ns):
        rows["query growth"] = _growth(config)
    if any(len(own) > 1 for own in plan.schedules.values()) and not is_dynamic(plan):
        longest = Cell("approximated", LONGEST)
        two = all(len(own) == 1 or _two_lists(own) for own in plan.schedules.values())
        here = Cell("exact", "two lists, by the longest current position") if two else longest
        if two and ConfigReader(config).model_type in _SHORT_LIST_ONLY:
            here = Cell("refused", "its code for this model type takes the short list for all")
        rows["switching by length"] = _row(
            transformers=here,
            vllm=longest,
            sglang=longest,
            llama_cpp=longest,
        )
    return rows


def _growth(config: Config) -> dict[str, Cell]:
    """The growth of queries that the model was trained with, by the key that each runtime reads."""
    cells = {
        "transformers": Cell("exact", GROWTH_IN_ROPE),
        "llama.cpp": Cell("refused", "no exported file can express it"),
    }
    for engine in ENGINE_NAMES:
        served = model_class(config, engine)
        if served.growth_key is None:
            cells[engine] = Cell("unknown", f"it is not known by which key {served} reads it")
        elif served.growth_key:
            cells[engine] = Cell("exact", served.growth_key)
        else:
            why = f"{served} reads neither {GROWTH_IN_ROPE} nor {GROWTH_BESIDE}"
            cells[engine] = Cell("refused", why)
    return {runtime: cells[runtime] for runtime in RUNTIMES}


def _everywhere(cell: Cell) -> dict[str, Cell]:
    return dict.fromkeys(RUNTIMES, cell)


def _llama_cpp_factors(plan: ContextPlan, config: Config) -> Cell:
    """How the pairs turn there, where a factor for each pair would say it."""
    kind = ConfigReader(config).model_type
    if kind not in family_names() or FULL_ATTENTION not in plan.schedules:
        if kind in LLAMA_CPP_FACTORS:
            return Cell("equivalent", "rope_freqs.weight, rope.scaling.attn_factor")
        return Cell("refused", "its graph of this architecture ignores factors by pair")
    bare = replace(
        approximation(plan, config).longest(),
        attention_scaling=1.0,
        softmax_scaling=1.0,
        log_n=None,
    )
    try:
        computed_as, setting = followed_by(family(kind), bare)
    except NoFactors:
        return Cell("approximated", NO_FACTORS)
    if setting.factors is None:
        return EXACT
    other = computed_as.name != family(kind).architectures[0]
    return Cell(
        "equivalent", f"{f'saved as {computed_as.name}, ' if other else ''}rope_freqs.weight"
    )


def _llama_cpp_attention(setting: Mapping[str, object], plan: ContextPlan, config: Config) -> Cell:
    """What multiplies cos and sin; layers with a base of their own it would multiply as well."""
    kind = ConfigReader(config).model_type
    if kind not in family_names():
        own = setting["rope_type"] == "yarn" and _is_own_attention(setting)
        return EXACT if own else _llama_cpp_factors(plan, config)
    try:
        rotation = rotation_of(family(kind), approximation(plan, config))
    except NoFactors:
        return EXACT  # the row of how the pairs turn tells of it
    except Unsupported as error:
        return Cell("refused", str(error))
    return EXACT if rotation.setting.attention == 1 else Cell("exact", "rope.scaling.attn_factor")


def _is_own_yarn(setting: Mapping[str, object]) -> bool:
    """llama.cpp truncates, and most graphs know one ramp, whatever the file says."""
    usual = (setting.get("beta_fast") or 32, setting.get("beta_slow") or 1) == (32, 1)
    return usual and bool(setting.get("truncate", True))


def _is_own_attention(setting: Mapping[str, object]) -> bool:
    return not {"attention_factor", "mscale", "mscale_all_dim"} & set(setting)
