"""The result of `plan`: a plan, its form in a stock config, and the lines that serve it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ropewalk.blocks import Block, Paragraph, Title
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.lengths import format_length
from ropewalk.models.source import Source
from ropewalk.planning import tables
from ropewalk.planning.extension import only_the_length
from ropewalk.runtimes.serving import Serving, pasted, serving
from ropewalk.schedule import RotarySchedule
from ropewalk.values import Charts, Drawn


@dataclass(frozen=True, eq=False)
class Planned(Drawn):
    """A plan for a longer context, and its form in a stock config."""

    rows_in = "serving"
    never_empty: ClassVar[tuple[str, ...]] = ("layers",)

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
    memory: str = ""
    """The type of cache of a GGUF file that this machine has room for at the target."""

    @property
    def schedule(self) -> RotarySchedule:
        """The schedule that serves the target."""
        return self.plan.longest(self.layers[0])

    @property
    def nothing_to_change(self) -> bool:
        """True if the model already serves the target, and the plan is the one that it follows."""
        return self.plan == self.present

    @property
    def target_length(self) -> int:
        return self.plan.target_length

    @property
    def serves_already(self) -> str:
        """A sentence for a target that the model already serves."""
        name, length = self.present.model, format_length(self.present.target_length)
        trained = self.trained_length
        if trained is not None and trained < self.present.target_length:
            return f"{name} states {length} already, and was trained at {format_length(trained)}."
        same = self.plan.rotates_like(self.present)
        effect = ": nothing needs to change." if same else "; this plan changes how it rotates."
        return f"{name} serves {length} already{effect}"

    @property
    def changes_nothing(self) -> str:
        """A sentence if the plan only states a longer length; empty otherwise."""
        from ropewalk.theory.coverage import coverage

        if not only_the_length(self.present, self.plan):
            return ""
        target, length = self.target_length, format_length(self.target_length)
        if target <= (trained := self.present.longest(self.layers[0]).length):
            return (
                f"{self.present.model} already handles {length}: it was trained at "
                f"{format_length(trained)}. This plan changes nothing but the stated length; to "
                f"extend the model, plan for more than {format_length(trained)}."
            )
        geometry = self.schedule.geometry
        met = coverage(self.schedule, target, trained=RotarySchedule.plain(geometry))
        angles = "no pair meets a new angle"
        if new := len(met.out_of_distribution):
            angles = f"{new} of {geometry.turning_pairs} pairs meet angles new to them"
        base = f"its base is safe for {length} by the bound, and " if self.base_is_safe else ""
        return (
            f"This plan changes nothing in {self.present.model} but the stated length: {base}"
            f"{angles} there. Whether it works there, `ropewalk evaluate` measures; to slow its "
            "pairs, plan with another method, such as ntk."
        )

    @property
    def base_is_safe(self) -> bool:
        """True if the base was chosen as the bound asks."""
        return False

    def derived(self) -> dict[str, object]:
        return {
            "plan_id": self.plan.id,
            "geometry": geometry_json(self.present, self.trained_length),
            "target_length": self.target_length,
            **schedule_json(self.schedule),
            "schedules": self.plan.to_json()["schedules"],
        }

    def summary(self) -> str:
        if self.nothing_to_change:
            return self.serves_already
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
        if self.documented:
            yield Paragraph(self.documented, "verdict")
        if self.target_length == self.present.target_length:
            yield Paragraph(self.serves_already, "verdict")
        if unchanged := self.changes_nothing:
            yield Paragraph(unchanged, "verdict")
        elif not self.nothing_to_change:
            lengths = f"{format_length(before.length)} to {format_length(self.target_length)}"
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
        yield from self.to_serve()

    def to_serve(self) -> Iterator[Block]:
        """The lines for each runtime, and the memory that they take."""
        yield from pasted(self.serving)
        if self.memory:
            yield Paragraph(f"# memory (`ropewalk cost`): {self.memory}")

    def charts(self) -> Charts:
        """The rescale factors, now and planned."""
        from ropewalk.planning.tables import by_step, factors

        plans = {"now": self.present, self.schedule.method: self.plan}
        return [factors(by_step(plans, self.layers[0]), self._lengths())]

    def _lengths(self) -> str:
        before, after = self.present.longest(self.layers[0]).length, self.target_length
        return f"{self.model}: {format_length(before)} to {format_length(after)}"


def geometry_json(plan: ContextPlan, trained_length: int | None) -> dict[str, object]:
    """The geometry of the main layers, and the model's three lengths."""
    return {
        **plan.longest(plan.main_layer).geometry.to_json(),
        "serves": plan.target_length,
        "trained_length": trained_length,
    }


def schedule_json(schedule: RotarySchedule) -> dict[str, object]:
    """A flat schedule, with its derived values."""
    return {
        "method": schedule.method,
        "rescale_factors": schedule.rescale_factors.tolist(),
        "inverse_frequencies": schedule.inverse_frequencies.tolist(),
        "attention_scaling": schedule.attention_scaling,
        "softmax_scaling": schedule.softmax_scaling,
        "kept_initial_positions": schedule.kept_initial_positions,
        "log_n_from": schedule.log_n.length if schedule.log_n else None,
        "log_n_form": schedule.log_n.form if schedule.log_n else None,
    }


def described(source: Source, plan: ContextPlan, layers: tuple[str, ...]) -> dict[str, Any]:
    """The fields of `Planned` for a plan of a model."""
    from ropewalk.costs.llama_cpp import room_here
    from ropewalk.models.stock_config import rope_parameters

    setting, refused, is_gguf = None, None, source.kind == "GGUF file"
    try:
        if not is_gguf:
            setting = rope_parameters(plan, source.config)
    except RopewalkError as error:
        refused = str(error)
    return {
        "model": source.name,
        "source": source.origin,
        "present": source.present_plan,
        "plan": plan,
        "trained_length": source.trained_length,
        "layers": layers,
        "rope_parameters": setting,
        "rope_parameters_refused": refused,
        "serving": serving(plan, source),
        "assumptions": source.assumptions,
        "documented": vendor.sentence(plan.target_length) if (vendor := source.documented) else "",
        "memory": room_here(source.header, plan.target_length) if is_gguf else "",
    }
