"""The result of `plan` without a method: the plans of all methods, ranked by measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ropewalk.blocks import Block, Details, Paragraph, Title
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, MissingExtra
from ropewalk.lengths import format_length
from ropewalk.models.source import Source
from ropewalk.planning import tables
from ropewalk.planning.base import sufficient_base
from ropewalk.planning.comparison import MethodCandidate, ranking_of
from ropewalk.planning.results import Planned, described
from ropewalk.progress import Notice, Progress, share
from ropewalk.runtimes import targets
from ropewalk.values import RESTORE, Charts

if TYPE_CHECKING:
    from ropewalk.planning.request import PlanRequest


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
        told = f"{self.documented} " if self.documented else ""
        trained, nothing = self.present.longest(self.layers[0]).length, self.changes_nothing
        if nothing and self.target_length < trained:
            return f"{told}{nothing}"
        refused = f" Not among them: {', '.join(self.refused)}." if self.refused else ""
        if self.target_length == self.present.target_length:
            told += f"{self.serves_already} "
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
        suggested = (
            f"Suggested {self.use}: {self.best.name} (a prediction, not measured on this model: "
            "`ropewalk evaluate` and `ropewalk extend` measure it)"
        )
        yield Paragraph(self.changes_nothing or suggested, "verdict")
        yield from self.to_serve()

    def charts(self) -> Charts:
        """The rescale factors of all candidates."""
        from ropewalk.planning.charts import by_step, factors

        plans = {candidate.name: candidate.plan for candidate in self.candidates}
        title = f"{self.model} to {format_length(self.target_length)}"
        return [factors(by_step(plans, self.layers[0]), title)]


def compared(asked: PlanRequest, progress: Progress, notice: Notice) -> Comparison:
    """Plan with every method, and rank the plans."""
    source, present = asked.source, asked.source.present_plan
    bases, refused = _safe_base(asked, share(progress, "safe base for " + asked.length))
    candidates, others = ranking_of(
        present,
        asked.target,
        layer_types=asked.chosen,
        from_original=asked.from_original,
        parameters=bases,
        after_training=asked.after_training,
        runtimes=lambda plan: _loadable_by(plan, source),
        progress=share(progress, "comparing"),
    )
    refused = {**others, **refused}
    if not candidates:
        reasons = [*refused.values()]
        raise InputError(
            f"{source.name}: no method plans for {asked.length}: {max(reasons, key=reasons.count)}"
        )
    for text in _warnings(candidates, source.name, after_training=asked.after_training):
        notice(text)
    return Comparison(
        **described(source, candidates[0].plan, asked.chosen),
        candidates=candidates,
        refused=refused,
        after_training=asked.after_training,
    )


def _safe_base(
    asked: PlanRequest, progress: Callable[[float], None]
) -> tuple[dict[str, dict[str, object]], dict[str, str]]:
    """The parameter that `base_change` needs; or, by method, why there is none."""
    try:
        base = sufficient_base(
            asked.source.present_plan,
            asked.target,
            asked.chosen[0],
            from_original=asked.from_original,
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
    for found in first.measured:
        if found.is_refuted and (not found.steps or after_training):
            when = "only after fine-tuning under this plan: " if not found.steps else ""
            yield f"{when if after_training else ''}{found.warning}"


def _loadable_by(plan: ContextPlan, source: Source) -> tuple[str, ...] | None:
    from ropewalk.runtimes import features, gguf_lines

    if source.kind == "GGUF file":
        return gguf_lines.loadable_by(plan, source.header)
    return features.loadable_by(plan, source.config)
