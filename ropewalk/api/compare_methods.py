"""`compare_methods`: every scaling method at one target, ranked by what measurement confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
    serves_already,
)
from ropewalk.blocks import Block, Details, Paragraph, Title
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, MissingExtra
from ropewalk.lengths import format_length
from ropewalk.models.source import Source, resolve, stated_assumptions
from ropewalk.options import called
from ropewalk.planning import tables
from ropewalk.planning.base import sufficient_base
from ropewalk.planning.comparison import Candidate, ranking_of
from ropewalk.planning.extension import check_not_shorter, chosen_layers
from ropewalk.progress import Notice, Progress, log_notice, share, shown
from ropewalk.runtimes import targets
from ropewalk.runtimes.serving import Serving, pasted, serving
from ropewalk.values import Charts, Drawn


@dataclass(frozen=True, eq=False)
class Comparison(Drawn):
    """The plans of all methods for one model and target, best first."""

    rows_in = "candidates"
    never_empty = ("candidates", "layers")

    model: str
    source: str
    """The origin of the config."""
    present: ContextPlan
    """The model's present plan."""
    trained_length: int | None
    target_length: int
    layers: tuple[str, ...]
    """The layer types that the plans change; the ranking is based on the first."""
    candidates: tuple[Candidate, ...]
    """At least one."""
    refused: Mapping[str, str]
    """The reason for each method that is not a candidate."""
    serving: tuple[Serving, ...]
    """By runtime, how it can express the best plan, and the lines that start it."""
    assumptions: tuple[str, ...] = ()
    """The assumptions made in reading the config, as in the warnings."""
    after_training: bool = False
    """True if the order is that for use after fine-tuning at the target length."""
    documented: str = ""
    """The vendor's documented extension for this target; empty if none is known."""

    @property
    def best(self) -> Candidate:
        """The candidate that ranks first. Let an evaluation decide."""
        return self.candidates[0]

    @property
    def use(self) -> str:
        """The use that the order is for."""
        return "after training" if self.after_training else "without training"

    @property
    def plan(self) -> ContextPlan:
        """The plan of the best candidate."""
        return self.best.plan

    @property
    def changes_nothing(self) -> str:
        """A sentence if the best plan only states a longer length; empty otherwise."""
        return changes_only_the_length(
            self.present, self.plan, self.layers[0], safe_base=self.best.method == "base_change"
        )

    def derived(self) -> dict[str, object]:
        return {
            "geometry": geometry_json(self.present, self.trained_length),
            "best": self.best.name,
        }

    def summary(self) -> str:
        told = f"{self.documented} " if self.documented else ""
        trained, nothing = self.present.longest(self.layers[0]).length, self.changes_nothing
        if nothing and self.target_length < trained:
            return f"{told}{nothing}"
        refused = f" Not among them: {', '.join(self.refused)}." if self.refused else ""
        if self.target_length == self.present.target_length:
            told += f"{serves_already(self.present, self.plan, self.trained_length)} "
        return (
            f"{told}Of {len(self.candidates)} plans that take {self.model} from "
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
        told = self.changes_nothing or (
            f"Suggested {self.use}: {self.best.name} (a prediction, not measured on this model: "
            "`ropewalk evaluate` and `ropewalk extend` measure it)"
        )
        yield Paragraph(told, "verdict")
        yield from pasted(self.serving)

    def charts(self) -> Charts:
        """The rescale factors of all candidates."""
        from ropewalk.planning.charts import by_step, factors

        plans = {candidate.name: candidate.plan for candidate in self.candidates}
        title = f"{self.model} to {format_length(self.target_length)}"
        return [factors(by_step(plans, self.layers[0]), title)]


def compare_methods(
    model: ModelToRead,
    to: TargetLength,
    *,
    layers: Layers = None,
    from_original: FromOriginal = False,
    trained_length: TrainedLength = None,
    after_training: AfterTraining = False,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> Comparison:
    """Plan with every method, and rank the plans.

    The ranks follow two lists of methods, ordered by the mean that small models retrieved: for use
    of the model as it is, and for use after fine-tuning at the target (`after_training`). A method
    that was not measured has no rank, and comes after those that were.
    """
    with called("compare_methods", compare_methods, locals()) as (_, progress):
        source = known_as(resolve(model, allow_download=allow_download), trained_length)
        target = as_length(to, "to")
        present = source.present_plan
        assumptions = stated_assumptions(source, notice, strict=strict)
        chosen = chosen_layers(present, layers)
        if not from_original:
            check_not_shorter(present, target)
        given, without = {}, {}
        try:
            base = sufficient_base(
                present,
                target,
                chosen[0],
                from_original=from_original,
                progress=share(progress, f"safe base for {format_length(target)}"),
            )
            given["base_change"] = {"base": base}
        except MissingExtra as error:  # the other methods need no base
            without["base_change"] = str(error)
        candidates, refused = ranking_of(
            present,
            target,
            layer_types=chosen,
            from_original=from_original,
            parameters=given,
            after_training=after_training,
            runtimes=lambda plan: _loadable_by(plan, source),
            progress=share(progress, "comparing"),
        )
        refused = {**refused, **without}
        if not candidates:
            reasons = [*refused.values()]
            raise InputError(
                f"{source.name}: no method plans for {format_length(target)}: "
                f"{max(reasons, key=reasons.count)}"
            )
        first = candidates[0]
        if behind := [each.method for each in candidates if each.is_beyond_runtimes]:
            resting, pairs = first.schedule.geometry.resting_pairs, first.schedule.geometry.pairs
            notice(
                f"{source.name}: {resting} of {pairs} pairs do not rotate (frequency 0), which no "
                f"stock runtime can combine with {', '.join(behind)}, so these rank last"
            )
        for found in first.measured:
            if found.is_refuted and (not found.steps or after_training):
                when = "only after fine-tuning under this plan: " if not found.steps else ""
                notice(f"{when if after_training else ''}{found.warning}")
        return Comparison(
            model=source.name,
            source=source.origin,
            present=present,
            trained_length=source.trained_length,
            target_length=target,
            layers=chosen,
            candidates=candidates,
            refused=refused,
            serving=serving(candidates[0].plan, source),
            assumptions=assumptions,
            after_training=after_training,
            documented=known.told(target) if (known := source.documented) else "",
        )


def _loadable_by(plan: ContextPlan, source: Source) -> tuple[str, ...] | None:
    from ropewalk.runtimes import features, gguf_lines

    if source.kind == "GGUF file":
        return gguf_lines.loadable_by(plan, source.header)
    return features.loadable_by(plan, source.config)
