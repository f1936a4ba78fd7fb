"""`plan`: a schedule for a longer context, from a model's config alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Never

from ropewalk.api.common import (
    AfterTraining,
    AllowDownload,
    FromOriginal,
    Layers,
    ModelToRead,
    Strict,
    TargetLength,
    TrainedLength,
    as_length,
    changes_only_the_length,
    geometry_json,
    known_as,
    schedule_json,
    serves_already,
)
from ropewalk.blocks import Block, Paragraph, Title
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, RopewalkError
from ropewalk.lengths import format_length
from ropewalk.models.recipes import RECIPE, VENDOR, Documented, Extension, is_documented
from ropewalk.models.source import Source, resolve, stated_assumptions
from ropewalk.options import Option, asked_directly, called, command
from ropewalk.planning import tables
from ropewalk.planning.extension import (
    begins_plain,
    check_not_shorter,
    chosen_layers,
    extend_plan,
    kept_parameters,
    within_trained,
)
from ropewalk.planning.measured import measured
from ropewalk.progress import Notice, Progress, log_notice, share, shown
from ropewalk.runtimes.serving import Serving, pasted, serving
from ropewalk.scaling import parameter_names, stacked
from ropewalk.schedule import LogNForm, RotarySchedule
from ropewalk.values import Charts, Drawn


@dataclass(frozen=True, eq=False)
class Planned(Drawn):
    """A plan for a longer context, and its form in a stock config."""

    rows_in = "serving"
    never_empty = ("layers",)

    model: str
    source: str
    """The origin of the config."""
    present: ContextPlan
    """The model's present plan."""
    plan: ContextPlan
    trained_length: int | None
    layers: tuple[str, ...]
    """The layer types that the plan changes; the summary describes the first."""
    rope_parameters: dict[str, object] | None
    """For the config.json of stock transformers; None if no stock config can express the plan, or
    if the model is a GGUF file, which has none."""
    rope_parameters_refused: str | None
    """Why no stock config can."""
    serving: tuple[Serving, ...]
    """By runtime, its support of the plan, and the lines that start it."""
    assumptions: tuple[str, ...] = ()
    """The assumptions made in reading the config, as in the warnings."""
    documented: str = ""
    """The vendor's documented extension for this target; empty if none is known."""

    @property
    def schedule(self) -> RotarySchedule:
        """The schedule that serves the target."""
        return self.plan.longest(self.layers[0])

    @property
    def nothing_to_change(self) -> bool:
        """True if the model already serves the target, and the plan is the one that it follows."""
        return self.plan == self.present

    @property
    def changes_nothing(self) -> str:
        """A sentence if the plan only states a longer length; empty otherwise."""
        return changes_only_the_length(self.present, self.plan, self.layers[0])

    def derived(self) -> dict[str, object]:
        return {
            "plan_id": self.plan.id,
            "geometry": geometry_json(self.present, self.trained_length),
            "target_length": self.plan.target_length,
            **schedule_json(self.schedule),
            "schedules": self.plan.to_json()["schedules"],
        }

    def summary(self) -> str:
        if self.nothing_to_change:
            return serves_already(self.present, self.plan, self.trained_length)
        if self.changes_nothing:
            return self.changes_nothing
        factors = self.schedule.rescale_factors
        speeds = f"rescale factors from {factors.min():.4g} to {factors.max():.4g}"
        if self.schedule.has_no_positions:
            speeds = "no positions"
        if not (self.rope_parameters or self.rope_parameters_refused):
            stock = "; ".join(f"{row.runtime}: {row.fit} ({row.reason})" for row in self.serving)
            stock += "."
        elif self.rope_parameters is None:
            stock = f"No stock config can express it: {self.rope_parameters_refused}."
        else:
            stock = "A stock config expresses it in its rope_parameters."
        return (
            f"{self._lengths()} by {self.schedule.method}: {speeds}, attention factor "
            f"{self.schedule.attention_scaling:.6g}. {stock}"
        )

    def blocks(self) -> Iterator[Block]:
        before, after = self.present.longest(self.layers[0]), self.schedule
        target = self.plan.target_length
        if self.documented:
            yield Paragraph(self.documented, "verdict")
        if target == self.present.target_length:
            told = serves_already(self.present, self.plan, self.trained_length)
            yield Paragraph(told, "verdict")
        if told := self.changes_nothing:
            yield Paragraph(told, "verdict")
        elif not self.nothing_to_change:
            lengths = f"{format_length(before.length)} to {format_length(target)}"
            yield Title(self.model, f": {lengths} by {after.method}")
            yield from tables.steps(self.plan)
            yield tables.pairs(
                ("wavelength now", "planned", "factor now", "planned"),
                [
                    (f"{a:,.2f}", f"{b:,.2f}", tables.factor(c), tables.factor(d))
                    for a, b, c, d in zip(
                        before.wavelengths,
                        after.wavelengths,
                        before.rescale_factors,
                        after.rescale_factors,
                        strict=True,
                    )
                ],
            )
            yield from self.charts()
            if self.rope_parameters_refused is not None:
                why = self.rope_parameters_refused
                yield Paragraph(f"no stock config can express it: {why}")
        yield from pasted(self.serving)

    def charts(self) -> Charts:
        """The rescale factors, now and planned."""
        from ropewalk.planning.charts import by_step, factors

        plans = {"now": self.present, self.schedule.method: self.plan}
        return [factors(by_step(plans, self.layers[0]), self._lengths())]

    def _lengths(self) -> str:
        before, after = self.present.longest(self.layers[0]).length, self.plan.target_length
        return f"{self.model}: {format_length(before)} to {format_length(after)}"


@command(
    "plan",
    "From a config alone",
    example="ropewalk plan llama-3-8b --to 32k --method yarn -o plan.json",
)
def plan(
    model: ModelToRead,
    to: TargetLength,
    method: Annotated[
        str | None,
        Option(
            "A method of `ropewalk methods`, or several joined by +, as in yarn+resonance; vendor "
            "is the extension that the model's vendor documents. Without a method, all are "
            "compared, and the plan is the one that ranks first.",
            "METHOD",
        ),
    ] = None,
    *,
    parameters: Annotated[
        Mapping[str, object] | None,
        Option("A parameter of the method.", "KEY=VALUE", shell=("--set",)),
    ] = None,
    log_n: Annotated[
        LogNForm | None,
        Option("Scale queries by log n: everywhere, or only beyond the original length."),
    ] = None,
    kept_initial_positions: Annotated[
        int | None,
        Option("Keep the plain angles at positions below N (no stock runtime supports this).", "N"),
    ] = None,
    layers: Layers = None,
    from_original: FromOriginal = False,
    trained_length: TrainedLength = None,
    after_training: AfterTraining = False,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
    **unknown: Never,
) -> Planned:
    """Plan a longer context: the factors of a method, ready for a runtime's config.

    Without a method, the plan is the one that `compare_methods` ranks first, for the model as it is
    or for use after fine-tuning (`after_training`). A method that failed on most of the small
    models that it was measured on is planned with a warning. `base_change` without a base uses the
    safe base of the target. `layers` are the layer types to extend (default: full attention).
    Positions below `kept_initial_positions` keep the plain angles, which no stock runtime can do.
    `from_original` ignores the model's present scaling and starts from the pretrained frequencies;
    so does a method that cannot go on from the present scaling, with a notice. `trained_length` is
    the length that the model was trained at, where its config leaves that open. The method
    `vendor` is the extension that the model's vendor documents for the target. `strict` refuses a
    config that leaves open how the model rotates, instead of warning.

    A target below the length that the model serves is refused, unless `from_original` gives that
    up; one that it was trained at and does not state changes lengths only. If the model serves the
    target already and the method changes nothing, the plan is the one that the model follows now.
    """
    values = locals()
    with called("plan", plan, values) as (_, progress):
        if unknown:
            raise _unexpected(unknown)
        source = known_as(resolve(model, allow_download=allow_download), trained_length)
        target = as_length(to, "to")
        present = source.present_plan
        said = {f"warning: {each}" for each in stated_assumptions(source, notice, strict=strict)}
        chosen = chosen_layers(present, layers)
        if not from_original:
            check_not_shorter(present, target)
        before = present.longest(chosen[0])
        if asks_to_compare(present, values):
            from ropewalk.api.compare_methods import compare_methods

            compared = compare_methods(
                *(source, target),
                layers=chosen,
                from_original=from_original,
                after_training=after_training,
                progress=progress,
                notice=lambda text: notice(text) if text not in said else None,
            )
            return _planned(source, compared.plan, chosen)
        if method is None:
            return _planned(source, within_trained(present, target, chosen), chosen)
        if not isinstance(parameters, Mapping | None):
            raise InvalidValue("parameters", parameters, "must be a mapping", "write {'base': 1e6}")
        given = dict(parameters or {})
        recipe = None
        if method != VENDOR:
            stacked(method, VENDOR)  # says which names there are
        else:
            recipe, extension = _by_vendor(source, target, given)
            method, given = extension.method, dict(extension.parameters)
        within = target < before.length
        asks = given or from_original or log_n or kept_initial_positions is not None
        if within and not asks:
            return _planned(source, within_trained(present, target, chosen), chosen)
        anew = not from_original and begins_plain(present, method, chosen)
        if anew:
            from_original = True
            given = {**kept_parameters(before, method), **given}
        if "base_change" in (each.name for each in stacked(method)) and "base" not in given:
            from ropewalk.planning.base import sufficient_base

            given["base"] = sufficient_base(
                present,
                target,
                chosen[0],
                from_original=from_original,
                progress=share(progress, f"safe base for {format_length(target)}"),
            )
        extended = extend_plan(
            present,
            target,
            method,
            given,
            layer_types=chosen,
            from_original=from_original,
            log_n=log_n,
            kept_initial_positions=kept_initial_positions,
        )
        if _same(present, extended):
            return _planned(source, present, chosen)
        if recipe is not None:
            extended = replace(extended, provenance={**extended.provenance, RECIPE: recipe.source})
        if anew:
            notice(_from_plain(source, before, method))
        start = RotarySchedule.plain(before.geometry) if from_original else before
        scale = target / start.length
        chain = [each.name for each in stacked(method)]
        untrained = [measured(name, scale, trained=False) for name in chain]
        refuted = any(each is not None and each.is_refuted for each in untrained)
        if after_training and asked_directly() and not refuted:
            raise InputError(
                f"`after_training` changes the order of all methods, and for {method} alone it "
                "changes nothing; leave it out"
            )
        for name in chain:
            if stacked(name)[0].needs_training and not before.has_no_positions:
                trained_at = format_length(before.geometry.original_length)
                notice(
                    f"warning: {source.name}: {name} needs training: the model is of no use under "
                    f"this plan until it has been trained under {name} at its original length of "
                    f"{trained_at} (a plan to {trained_at}), which ropewalk has not measured"
                )
            found = measured(name, scale, trained=after_training)
            if found is not None and found.is_refuted and not parameters:
                notice(found.warning)
        return _planned(source, extended, chosen)


def asks_to_compare(present: ContextPlan, given: Mapping[str, Any]) -> bool:
    """True if `plan` compares all methods: none is named, and the target needs one."""
    if given.get("method") is not None:
        return False
    if any(given.get(each) not in (None, {}) for each in _OF_A_METHOD):
        raise InputError(
            "`parameters`, `log_n` and `kept_initial_positions` belong to a method: name one "
            "(`method`), such as yarn"
        )
    known = present.longest(chosen_layers(present, given.get("layers"))[0]).length
    return bool(given.get("from_original")) or as_length(given["to"], "to") > known


_OF_A_METHOD = ("parameters", "log_n", "kept_initial_positions")


def _unexpected(unknown: Mapping[str, object]) -> Exception:
    """Of a method's parameters, the error that says where they belong."""
    for name in unknown.keys() - parameter_names():
        return TypeError(f"plan() got an unexpected keyword argument {name!r}")
    return InputError(
        f"{', '.join(unknown)}: parameters of a method are given together; write "
        f"parameters={unknown}"
    )


def _same(present: ContextPlan, planned: ContextPlan) -> bool:
    """Both compute the same at each length, whatever the methods are called."""
    ends, others = (
        {name: [step.up_to_length for step in steps] for name, steps in each.schedules.items()}
        for each in (present, planned)
    )
    return ends == others and planned.rotates_like(present)


def _planned(source: Source, planned: ContextPlan, layers: tuple[str, ...]) -> Planned:
    from ropewalk.models.stock_config import rope_parameters

    setting, refused = None, None
    try:
        if source.kind != "GGUF file":
            setting = rope_parameters(planned, source.config)
    except RopewalkError as error:
        refused = str(error)
    return Planned(
        model=source.name,
        source=source.origin,
        present=source.present_plan,
        plan=planned,
        trained_length=source.trained_length,
        layers=layers,
        rope_parameters=setting,
        rope_parameters_refused=refused,
        serving=serving(planned, source),
        assumptions=source.assumptions,
        documented=found.told(planned.target_length) if (found := source.documented) else "",
    )


def _by_vendor(
    source: Source, target: int, given: Mapping[str, object]
) -> tuple[Documented, Extension]:
    """The vendor's documentation, and its extension for the target."""
    if given:
        raise InputError(
            f"`parameters` belong to a method, and `{VENDOR}` stands for documented ones; name the "
            "method itself to change them"
        )
    found = source.documented
    if (
        found is None
        and source.stated_length
        and (usual := replace(source, stated_length=None)).documented
    ):
        raise InputError(
            f"{source.name}: its documented extension counts from a trained length of "
            f"{format_length(usual.trained_length)}, not from the stated "
            f"{format_length(source.stated_length)}; leave out `trained_length`, or name a method"
        )
    if found is None:
        raise InputError(
            f"{source.name}: no documented extension is known for a model of this structure and "
            "scaling; name a method, such as yarn"
        )
    return found, found.needed(target)


def _from_plain(source: Source, start: RotarySchedule, method: str) -> str:
    """A notice of where the plan starts, and of what that leaves behind."""
    plain = format_length(start.geometry.original_length)
    told = (
        f"{source.name}: {method} cannot go on from {start.method}, so the plan starts from the "
        f"plain frequencies of {plain}"
    )
    if source.kind != "GGUF file" and is_documented(source.config):
        return told
    return (
        f"warning: {told}; if the model was trained under {start.method} up to "
        f"{format_length(start.length)}, that training is not carried over, and methods that go on "
        "from it (ntk, linear) keep it"
    )
