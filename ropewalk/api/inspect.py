"""`inspect`: a model's rotary geometry, its present schedule, and the predictions of theory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ropewalk.api.common import AllowDownload, ModelToRead, Strict
from ropewalk.blocks import Block, Paragraph, Title
from ropewalk.context_plan import ContextPlan
from ropewalk.gguf.facts import Facts
from ropewalk.lengths import format_length
from ropewalk.models.source import resolve, stated_assumptions
from ropewalk.options import called, command
from ropewalk.planning import tables
from ropewalk.planning.results import geometry_json, schedule_json
from ropewalk.progress import Notice, log_notice
from ropewalk.runtimes.drafters import as_drafter
from ropewalk.schedule import RotarySchedule
from ropewalk.theory.coverage import coverage, critical_dimension, critical_pair
from ropewalk.theory.decay import decay
from ropewalk.values import Charts, Drawn, Value

JUDGED = 16 * 1024**2
"""Theory is computed for positions up to here; more would take too long."""


SCOPE = (
    "This is theory for a model pretrained with this base; it says nothing about models fine-tuned "
    "after their extension."
)


@dataclass(frozen=True, eq=False)
class Theory(Value):
    """The predictions of theory for the schedule, before the model runs."""

    length: int
    effective_length: int | None
    """The distance at which a random key first outscores a similar one; None if never."""
    violations: int
    least_advantage: float
    out_of_distribution_pairs: tuple[int, ...]
    out_of_distribution_share: float
    critical_pair: int | None
    critical_dimension: int | None


@dataclass(frozen=True, eq=False)
class Inspection(Drawn):
    """A model's rotary embedding."""

    model: str
    source: str
    """The origin of the config."""
    plan: ContextPlan
    """The model's present plan."""
    trained_length: int | None
    """The length of its training sequences, if the catalogue or the bundled model states it."""
    theory: Theory
    assumptions: tuple[str, ...] = ()
    """The assumptions made in reading the config, as in the warnings."""
    file: Facts | None = None
    """The sizes, quantisation and windows of a GGUF file."""
    drafter: str = ""
    """Its form and reach as a drafter; empty for a model that is no more than one."""

    @property
    def schedule(self) -> RotarySchedule:
        """The schedule of the longest sequences, in the main layers."""
        return self.plan.longest(self.plan.main_layer)

    def derived(self) -> dict[str, object]:
        return {
            "geometry": geometry_json(self.plan, self.trained_length),
            "schedules": self.plan.to_json()["schedules"],
            **schedule_json(self.schedule),
        }

    def summary(self) -> str:
        geometry, theory = self.schedule.geometry, self.theory
        file = "" if self.file is None else f" It has {'; '.join(self.file.sentences())}."
        if self.schedule.has_no_positions:
            reach = "it has no positions, since no pair turns"
        elif theory.effective_length is None:
            below = format_length(theory.length)
            reach = f"similar keys beat random ones at all distances below {below}"
        else:
            reach = (
                f"random keys first beat similar ones at a distance of {theory.effective_length:,}"
            )
        return (
            f"{self.model} ({self.source}) serves {format_length(self.plan.target_length)} tokens "
            f"by {self.schedule.method}; its plain frequencies have base {geometry.base:,.10g} and "
            f"were pretrained at {format_length(geometry.original_length)}. "
            f"{geometry.turning_pairs} pairs rotate, "
            f"{len(theory.out_of_distribution_pairs)} of them to angles that pretraining never "
            f"met. In theory, {reach}. {SCOPE}{file}{f' {self.drafter}.' * bool(self.drafter)}"
        )

    def blocks(self) -> Iterator[Block]:
        schedule = self.schedule
        geometry = schedule.geometry
        yield Title(self.model, f" ({self.source})")
        for line in () if self.file is None else self.file.sentences():
            yield Paragraph(f"  {line}")
        yield Paragraph(
            f"  heads of {geometry.head_dim}, {geometry.rotary_dim} dimensions rotate as "
            f"{geometry.pairs} pairs ({geometry.pair_layout} layout), base {geometry.base:,.10g}"
        )
        if resting := geometry.resting_pairs:
            yield Paragraph(f"  the slowest {resting} of these pairs have a frequency of zero")
        if rotating := self.plan.provenance.get("rotating_layers"):
            yield Paragraph(f"  {rotating} layers rotate; a plan changes no other")
        length = self.trained_length
        trained = f"; trained at {format_length(length)}" if length else ""
        yield Paragraph(
            f"  pretrained frequencies for {format_length(geometry.original_length)}; "
            f"configured for {format_length(self.plan.target_length)} now{trained}"
        )
        yield from tables.steps(self.plan)
        if self.drafter:
            yield Paragraph(f"  {self.drafter}")
        yield from (Paragraph(f"  {line}") for line in _by_theory(self))
        columns = ["wavelength", f"turns in {format_length(schedule.length)}", "factor"]
        yield tables.pairs(
            columns,
            [
                (
                    f"{wavelength:,.2f}",
                    f"{schedule.length / wavelength:,.2f}",
                    tables.factor(schedule.rescale_factors[i]),
                )
                for i, wavelength in enumerate(schedule.wavelengths)
            ],
        )
        yield from self.charts()

    def charts(self) -> Charts:
        """The rescale factors of every step."""
        from ropewalk.planning.tables import by_step, factors

        steps = by_step({self.schedule.method: self.plan}, self.plan.main_layer)
        return [factors(steps, self.model)]


def _by_theory(inspection: Inspection) -> Iterator[str]:
    theory = inspection.theory
    if inspection.schedule.has_no_positions:
        yield "no positions: no pair turns, so theory predicts nothing"
        return
    yield _effective_length(theory, theory.length)
    yield SCOPE
    new, critical = len(theory.out_of_distribution_pairs), theory.critical_pair
    turned = {None: "all pairs", 0: "no pair"}.get(critical, f"pairs before {critical}")
    pairs = f"{new} of {inspection.schedule.geometry.pairs} pairs meet" if new else "no pair meets"
    yield (
        f"angles: {turned} completed a full turn in pretraining; {pairs} new angles up to "
        f"{format_length(theory.length)}"
    )


def _effective_length(theory: Theory, length: int) -> str:
    if theory.effective_length is None:
        return (
            f"theoretical effective length: all of {format_length(length)} (a similar key scores "
            "above a random one at every distance)"
        )
    return (
        f"theoretical effective length: {theory.effective_length:,} of {format_length(length)} "
        f"tokens (a random key scores above a similar one at {theory.violations:,} distances)"
    )


@command("inspect", "From a config alone", example="ropewalk inspect llama-3.1-8b")
def inspect(
    model: ModelToRead,
    *,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    notice: Notice = log_notice,
) -> Inspection:
    """Show a model's rotary geometry and the schedule it follows now.

    `strict` refuses a config that leaves open how the model rotates, instead of warning.
    """
    with called("inspect", inspect, locals()):
        source = resolve(model, allow_download=allow_download)
        plan = source.present_plan
        assumptions = stated_assumptions(source, notice, strict=strict)
        return Inspection(
            model=source.name,
            source=source.origin,
            plan=plan,
            trained_length=source.trained_length,
            theory=theory_of(plan.longest(plan.main_layer)),
            assumptions=assumptions,
            file=Facts.of(source.header) if source.kind == "GGUF file" else None,
            drafter="" if source.kind == "GGUF file" else as_drafter(source.config),
        )


def theory_of(schedule: RotarySchedule) -> Theory:
    """Decay and coverage up to the length that the schedule serves."""
    length = min(schedule.length, JUDGED)
    decayed, angles = decay(schedule, length), coverage(schedule, length)
    plain = RotarySchedule.plain(schedule.geometry)
    return Theory(
        length=length,
        effective_length=decayed.effective_length,
        violations=decayed.violations,
        least_advantage=decayed.least,
        out_of_distribution_pairs=angles.out_of_distribution,
        out_of_distribution_share=angles.out_of_distribution_share,
        critical_pair=critical_pair(plain),
        critical_dimension=critical_dimension(plain),
    )
