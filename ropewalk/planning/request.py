"""The policy of `plan`: a named method, the vendor's documented extension, or what ranks first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue
from ropewalk.lengths import format_length
from ropewalk.models.recipes import RECIPE, VENDOR, Documented, is_documented
from ropewalk.models.source import Source
from ropewalk.planning.extension import (
    begins_plain,
    check_not_shorter,
    chosen_layers,
    extend_plan,
    kept_parameters,
    parsed,
    within_trained,
)
from ropewalk.planning.measured import measured
from ropewalk.planning.results import Planned, described
from ropewalk.progress import Notice, Progress, share
from ropewalk.scaling import stacked
from ropewalk.schedule import LogNForm, RotarySchedule


@dataclass(frozen=True)
class PlanRequest:
    """A model, a target, and the choices that a user made for it."""

    source: Source
    target: int
    method: str | None = None
    """None for the method that ranks first; `vendor` for the documented extension."""
    parameters: Mapping[str, object] | None = None
    log_n: LogNForm | None = None
    kept_initial_positions: int | None = None
    layers: Sequence[str] | None = None
    from_original: bool = False
    after_training: bool = False

    def __post_init__(self) -> None:
        if self.method is not None and not (isinstance(self.method, str) and self.method == VENDOR):
            stacked(self.method, VENDOR)  # says which names there are
        if not isinstance(self.parameters, Mapping | None):
            raise InvalidValue(
                "parameters", self.parameters, "must be a mapping", "write {'base': 1e6}"
            )
        if self.method is None and self.changes_a_method:
            raise InputError(
                "`parameters`, `log_n` and `kept_initial_positions` belong to a method: name one "
                "(`method`), such as yarn"
            )
        if self.method == VENDOR and self.parameters:
            raise InputError(
                f"`parameters` belong to a named method, and `{VENDOR}` uses those that the vendor "
                "documents; to change them, name the method"
            )
        if self.method not in (None, VENDOR):
            object.__setattr__(self, "parameters", parsed(self.method, self.parameters or {}))
        self.chosen  # noqa: B018 - says which layers there are
        if not self.from_original:
            check_not_shorter(self.source.present_plan, self.target)

    @property
    def changes_a_method(self) -> bool:
        kept = self.kept_initial_positions
        return bool(self.parameters) or self.log_n is not None or kept is not None

    @property
    def chosen(self) -> tuple[str, ...]:
        """The layer types to extend; the first is the one that is judged."""
        return chosen_layers(self.source.present_plan, self.layers)

    @property
    def length(self) -> str:
        return format_length(self.target)

    @property
    def before(self) -> RotarySchedule:
        """The schedule that the model follows now."""
        return self.source.present_plan.longest(self.chosen[0])

    @property
    def start(self) -> RotarySchedule:
        """The schedule that the method goes on from."""
        return RotarySchedule.plain(self.before.geometry) if self.from_original else self.before

    def check_use(self) -> None:
        """Refuse `after_training` for a method that it changes nothing of."""
        if self.method in (None, VENDOR) or not self.after_training:
            return
        scale = self.target / self.started().start.length
        for each in stacked(self.method):
            measurement = measured(each.name, scale, trained=False)
            if measurement is not None and measurement.is_refuted:
                return
        raise InputError(
            f"`after_training` changes the order of all methods, and for {self.method} alone it "
            "changes nothing; leave it out"
        )

    def started(self) -> PlanRequest:
        """The same request from the plain frequencies, if its method cannot go on from others."""
        present = self.source.present_plan
        assert self.method is not None
        if self.from_original or not begins_plain(present, self.method, self.chosen):
            return self
        kept = kept_parameters(self.before, self.method)
        return replace(self, from_original=True, parameters={**kept, **(self.parameters or {})})


def planned(request: PlanRequest, progress: Progress, notice: Notice) -> Planned:
    """The plan of the method that was named, or else a comparison of all, with the first's plan."""
    present, from_original = request.source.present_plan, request.from_original
    if request.method is None and (from_original or request.target > request.before.length):
        from ropewalk.planning.comparison import compared

        return compared(request, progress, notice)
    if request.method == VENDOR:
        documented = _documented(request.source)
        extension = documented.needed(request.target)
        named = replace(request, method=extension.method, parameters=extension.parameters)
        plan = plan_by_method(named, progress, notice)
        sourced = {**plan.provenance, RECIPE: documented.source}
        plan = plan if plan == present else replace(plan, provenance=sourced)
    elif request.method is None or _is_within(request):
        plan = within_trained(present, request.target, request.chosen)
    else:
        plan = plan_by_method(request, progress, notice)
    return Planned(**described(request.source, plan, request.chosen))


def _is_within(request: PlanRequest) -> bool:
    """True if the model was trained at the target, so that lengths are all that change."""
    asks = request.changes_a_method or request.from_original
    return request.target < request.before.length and not asks


def plan_by_method(request: PlanRequest, progress: Progress, notice: Notice) -> ContextPlan:
    """The plan of a method, with what a user of it should know as notices.

    A method that cannot go on from the present scaling starts from the plain frequencies, and
    `base_change` without a base takes the safe one.
    """
    assert request.method is not None
    present, started = request.source.present_plan, request.started()
    parameters = dict(started.parameters or {})
    if "base" not in parameters and "base_change" in _names(request.method):
        from ropewalk.planning.comparison import sufficient_base

        parameters["base"] = sufficient_base(
            present,
            request.target,
            request.chosen[0],
            from_original=started.from_original,
            progress=share(progress, f"safe base for {request.length}"),
        )
    plan = extend_plan(
        present,
        request.target,
        request.method,
        parameters,
        layer_types=request.chosen,
        from_original=started.from_original,
        log_n=request.log_n,
        kept_initial_positions=request.kept_initial_positions,
    )
    if _same(present, plan):
        return present
    for text in _notices(request, started):
        notice(text)
    return plan


def _names(methods: str) -> list[str]:
    return [each.name for each in stacked(methods)]


def _notices(request: PlanRequest, started: PlanRequest) -> Iterator[str]:
    """Say where the plan starts, and what is known against its method."""
    assert request.method is not None
    if started.from_original and not request.from_original:
        yield _from_plain(request)
    scale = request.target / started.start.length
    for each in stacked(request.method):
        if each.needs_training and not request.before.has_no_positions:
            trained_at = format_length(request.before.geometry.original_length)
            yield (
                f"warning: {request.source.name}: {each.name} needs training: the model is of no "
                f"use under this plan until it has been trained under {each.name} at its original "
                f"length of {trained_at} (a plan to {trained_at}), which ropewalk has not measured"
            )
        measurement = measured(each.name, scale, trained=request.after_training)
        if measurement is not None and measurement.is_refuted and not request.parameters:
            yield measurement.warning


def _same(present: ContextPlan, planned: ContextPlan) -> bool:
    """Both compute the same at each length, whatever the methods are called."""
    ends, others = (
        {name: [step.up_to_length for step in steps] for name, steps in each.schedules.items()}
        for each in (present, planned)
    )
    return ends == others and planned.rotates_like(present)


def _documented(source: Source) -> Documented:
    """The vendor's documentation for a model; one that counts from another length is refused."""
    documented = source.documented
    if documented is not None:
        return documented
    usual = replace(source, stated_length=None)
    if source.stated_length and usual.documented:
        raise InputError(
            f"{source.name}: its documented extension counts from a trained length of "
            f"{format_length(usual.trained_length)}, not from the stated "
            f"{format_length(source.stated_length)}; leave out `trained_length`, or name a method"
        )
    raise InputError(
        f"{source.name}: no documented extension is known for a model of this structure and "
        "scaling; name a method, such as yarn"
    )


def _from_plain(request: PlanRequest) -> str:
    """A notice of where the plan starts, and of what that leaves behind."""
    source, start = request.source, request.before
    sentence = (
        f"{source.name}: {request.method} cannot go on from {start.method}, so the plan starts "
        f"from the plain frequencies of {format_length(start.geometry.original_length)}"
    )
    if source.kind != "GGUF file" and is_documented(source.config):
        return sentence
    return (
        f"warning: {sentence}; if the model was trained under {start.method} up to "
        f"{format_length(start.length)}, that training is not carried over, and methods that go on "
        "from it (ntk, linear) keep it"
    )
