"""The result of a search on a real model: scores, legs, and the plan that they end in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ropewalk.blocks import Block, Cell, Details, Paragraph, Table, Title
from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation.select import Paired
from ropewalk.interval import Ends, Interval, Unit
from ropewalk.lengths import format_length
from ropewalk.schedule import Recipe, RotarySchedule
from ropewalk.searching.driver import Point
from ropewalk.values import Charts, Drawn, Unbounded, Value, check_filled, check_member, flat

if TYPE_CHECKING:
    from ropewalk.chart import Chart

SEARCHED = "search"
"""The name of a searched schedule among methods."""
PRESENT = "unmodified"
PICTURES = ("progress", "factors")


class Score(NamedTuple):
    """Means over documents."""

    score: Unbounded
    """The value that the search minimises; infinite if the model failed."""
    perplexity: Unbounded
    """Perplexity of the final tokens of the text."""
    retrieval: float
    """The share of the facts that were answered exactly."""
    documents: int
    perplexity_ends: tuple[Unbounded, Unbounded] | None = None
    retrieval_ends: Ends | None = None
    """In 95% intervals; None if the model failed, or there is too little for one."""


class ScoredSchedule(NamedTuple):
    """A schedule, and its scores on each set of documents; None if it was not read there."""

    schedule: RotarySchedule
    search: Score | None
    selection: Score
    reporting: Score | None

    @property
    def scores(self) -> dict[str, Score]:
        """By the set of documents."""
        return {name: score for name, score in self._asdict().items() if isinstance(score, Score)}


@dataclass(frozen=True, eq=False)
class Leg(Value):
    """The result of a search at one length."""

    length: int
    chosen: str
    """`search`, or the hand-designed method that nothing searched was shown to be better than. As
    published, always `search`."""
    best_hand_designed: str
    best: ScoredSchedule
    """The chosen schedule."""
    baselines: Mapping[str, ScoredSchedule]
    """Those that dropped out of the selection have fewer documents there."""
    selection: Paired | None
    """The best searched schedule's score minus that of the best hand-designed method, on the
    documents that decided; None if there was nothing to compare."""
    held_out: Paired | None
    """The same of the searched schedule that was chosen, on documents that decided nothing."""
    sources: Mapping[str, tuple[str, ...]]
    """The sources of the documents to search on, to select by and to report on."""
    remaining: tuple[str, ...]
    """The hand-designed methods that were not clearly worse than the best of them."""
    history: tuple[Point, ...]
    evaluations: float
    tokens: int
    at_bounds: tuple[str, ...] = ()
    """The bounds of the searched space that the chosen schedule lies on, in words."""
    at_original_length: Mapping[str, Score] = field(default_factory=dict)
    """The cost of an extension on short text: the unmodified model, the best hand-designed method
    and the chosen schedule, on the beginnings of the documents to report on."""
    cost_at_original_length: Paired | None = None
    """There, the chosen schedule's score minus that of the unmodified model."""
    best_searched: str | None = None
    """The best searched schedule: a hand-designed method up to rounding, or one of its own."""
    selection_text: Paired | None = None
    """The difference of `selection` in the loss of the text alone."""
    selection_answers: Paired | None = None
    """The same in the loss of the answers alone."""
    short_costs: Mapping[str, Paired] = field(default_factory=dict)
    """Nats a token of text, at the original length, above the unmodified model: of the schedules
    that may be best at the target, on the documents that decided."""
    short_behind: Mapping[str, Paired] = field(default_factory=dict)
    """The same of hand-designed methods, above the chosen schedule on the same documents."""
    short_limit: float | None = None
    by_objective: Mapping[str, Unbounded] = field(default_factory=dict)
    """The objective of the search, for each hand-designed method: as in `history`, with the loss of
    short text if that counts."""
    behind: Mapping[str, Paired] = field(default_factory=dict)
    """The score of each other hand-designed method minus that of the best, on the documents to
    select by that both read."""
    by_rule: str | None = None
    """The schedule that ropewalk's rule gives, in words, if Algorithm 1's own was taken instead."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_filled(self.baselines, "baselines")
        check_member(self.chosen, (SEARCHED, *self.baselines), "chosen")
        check_member(self.best_hand_designed, self.baselines, "best_hand_designed")

    @property
    def method(self) -> str | None:
        """The hand-designed method that was chosen, if one was."""
        return None if self.chosen == SEARCHED else self.chosen

    @property
    def arms(self) -> dict[str, ScoredSchedule]:
        """The chosen schedule, and the hand-designed ones next to it."""
        others = {name: arm for name, arm in self.baselines.items() if name != self.chosen}
        return {self.chosen: self.best, **others}

    def blocks(self) -> Iterator[Block]:
        """Yield the scores of all arms, the charts, and what was found on short text."""
        yield from self.tables()
        yield from self.charts()
        apart = self.best.reporting is not None
        if self.at_original_length and apart:
            title = "At the original length, on the beginnings of the same documents"
            yield _scores(title, self.at_original_length, self.chosen, _MEANS)
        if self.history:  # a race is told by its table
            yield from map(Paragraph, filter(None, _in_words(self)))
        if self.method is None and apart:
            yield Paragraph(
                f"Loss of {self.best_hand_designed} minus that of the search: "
                f"{self.gain('reporting'):+.4f} on held-out documents, {self.gain('search'):+.4f} "
                "on those of the search; the excess of the second is overfitting and chance."
            )

    def tables(self) -> Iterator[Table | Details]:
        """The scores of all arms on documents that decided nothing.

        Of a race or search whose choice is judged elsewhere, which keeps none, those on documents
        that did, with the price on short text that was measured there.
        """
        at, arms = format_length(self.length), self.arms
        if self.best.reporting is not None:
            read = {name: arm.reporting or arm.selection for name, arm in arms.items()}
            yield _scores(f"Held-out documents, at {at}", read, self.chosen, _MEANS)
            return
        read = {name: arm.selection for name, arm in arms.items()}
        more = (
            {"change on short text, while choosing": _changes(self.short_costs)}
            if self.short_costs
            else {}
        )
        title = f"Methods at {at}, on the documents that choose"
        if not self.behind:
            yield _scores(title, read, self.chosen, _CHOOSING, more)
            return
        level = next(iter(self.behind.values())).difference.level
        more = {_BEHIND: {name: self._against(name) for name in arms}, **more}
        every = _scores("", read, self.chosen, _CHOOSING, more)
        few = [every.columns.index(name) for name in ("method", "facts retrieved", _BEHIND)]
        rows = tuple(tuple(row[i] for i in few) for row in every.rows)
        caption = f"{_TIED.format(level)}{self._only_fluent()}"
        yield Table(title, tuple(every.columns[i] for i in few), rows, caption)
        yield Details((every,), "All figures of each method")

    def _only_fluent(self) -> str:
        """The methods that predict the text as well as the chosen one and find half as much."""
        best = self.best.selection
        names = [
            f"{name} ({each.perplexity:.3g}, with {each.retrieval:.0%} of facts)"
            for name, each in ((n, arm.selection) for n, arm in self.baselines.items())
            if each.perplexity < 1.02 * best.perplexity and each.retrieval < best.retrieval / 2
        ]
        if not names:
            return ""
        chosen = f"that of {self.chosen} is {best.perplexity:.3g}"
        return f" Perplexity alone ({chosen}) does not show the failure of {' and '.join(names)}."

    def _against(self, name: str) -> Cell:
        """The mark of a method next to the best one, by the rule of the race."""
        if name == self.best_hand_designed:
            return Cell("best", 0.0)
        if name not in self.behind:
            return Cell("–")
        mark = "tied" if name in self.remaining else "worse"
        less = self.behind[name].difference
        return Cell(f"{mark}, {less.number()}", less.value, quiet=less.range())

    def charts(self) -> list[Chart]:
        """Progress and factors."""
        from ropewalk.planning.tables import factors
        from ropewalk.searching.model.charts import progress

        schedules = {name: arm.schedule for name, arm in self.arms.items()}
        return [
            progress(f"Search at {format_length(self.length)}", self.history, self.by_objective),
            factors(schedules, "Rescale factors by method", self.chosen),
        ]

    def gain(self, documents: Literal["search", "reporting"]) -> float:
        """The score of the best hand-designed method minus that of the chosen schedule.

        The part of a gain on the search documents that is missing on the others is overfitting.
        """
        baseline = self.baselines[self.best_hand_designed].scores[documents]
        return baseline.score - self.best.scores[documents].score


_MEANS = "Best first, by the score: the loss that the search minimises. Means over few documents."
_BEHIND = "loss above the best"
_RULE = (
    "Of the best and those tied, the first within the limit on short text is chosen, else the "
    "cheapest there."
)
_CHOOSING = (
    "Best first, by the loss that chooses, in nats a token; unless another was asked for, that of "
    f"text plus answers. {_RULE} Short text: the change of perplexity within the original length. "
    "95% intervals."
)
_TIED = (
    "Best first. Loss: nats a token of text and answers, on documents that both read, with "
    f"{{:.1%}} intervals, for many are tested (facts: 95%); tied: it reaches 0. {_RULE}"
)


def _scores(
    title: str,
    read: Mapping[str, Score],
    chosen: str,
    caption: str,
    more: Mapping[str, Mapping[str, Cell]] = MappingProxyType({}),
) -> Table:
    """A row for each schedule, the best first; `more` are columns before the last."""
    columns = ("method", "facts retrieved", "perplexity of the text", "score", *more, "documents")
    rows = [
        (
            Cell(f"{name} (chosen)" if name == chosen else name),
            _with_ends(score.retrieval, score.retrieval_ends, "share"),
            _with_ends(score.perplexity, score.perplexity_ends, "perplexity"),
            _with_ends(score.score, None, "nats"),
            *(column.get(name, Cell("–")) for column in more.values()),
            Cell(str(score.documents), score.documents),
        )
        for name, score in sorted(read.items(), key=lambda each: each[1].score)
    ]
    return Table(title, columns, tuple(rows), caption)


def _with_ends(value: float, ends: Ends | None, unit: Unit) -> Cell:
    if math.isinf(value):
        return Cell("failed", value)
    interval = Interval.of(value, ends, unit)
    return Cell(interval.number(), value, quiet=interval.range())


def _changes(costs: Mapping[str, Paired]) -> dict[str, Cell]:
    """Differences of losses as changes of perplexity."""
    changes = {name: cost.change for name, cost in costs.items()}
    return {n: Cell(each.number(), each.value, quiet=each.range()) for n, each in changes.items()}


@dataclass(frozen=True, eq=False)
class SearchResult(Drawn):
    """The plan that a search ends in, and the legs that led to it."""

    never_empty = ("legs",)

    plan: ContextPlan
    legs: tuple[Leg, ...]

    def to_rows(self) -> list[dict[str, Any]]:
        """The scores of each hand-designed method and of the chosen schedule, at each length."""
        return [
            {"length": leg.length, "method": name, **flat(arm.scores)}
            for leg in self.legs
            for name, arm in {**leg.baselines, leg.chosen: leg.best}.items()
        ]

    def derived(self) -> dict[str, object]:
        leg = self.legs[0]
        schedule = leg.best.schedule
        return {
            "best": {
                "score": leg.best.search and leg.best.search.score,
                "rescale_factors": schedule.rescale_factors,
                "kept_initial_positions": schedule.kept_initial_positions,
                "attention_scaling": schedule.attention_scaling,
            },
            "baselines": {name: arm.reporting for name, arm in leg.baselines.items()},
            "held_out": leg.best.reporting,
            "evaluations": round(sum(leg.evaluations for leg in self.legs), 3),
            "tokens": sum(leg.tokens for leg in self.legs),
        }

    def summary(self) -> str:
        return " ".join(self.sentences())

    def sentences(self) -> list[str]:
        """The choice at each length, and what it costs."""
        return [sentence for leg in self.legs for sentence in _in_words(leg) if sentence]

    def blocks(self) -> Iterator[Block]:
        for leg in self.legs:
            yield from leg.blocks()

    def charts(self) -> Charts:
        """The best score so far against the tokens it took."""
        return next(iter(self.pictures().values()))

    def pictures(self) -> dict[str, Charts]:
        """The charts of every picture, by its name: progress and factors of each leg."""
        drawn: dict[str, Charts] = {}
        for leg in self.legs:
            prefix = "" if len(self.legs) == 1 else f"{format_length(leg.length)}-"
            for name, chart in zip(PICTURES, leg.charts(), strict=True):
                drawn[f"{prefix}{name}"] = [chart]
        return drawn


@dataclass(frozen=True, eq=False)
class Searched(SearchResult):
    """The result of a search on one model."""

    model: str = field(kw_only=True)
    dtype: str = field(kw_only=True)
    device: str = field(kw_only=True)
    seconds: float = field(kw_only=True)

    def blocks(self) -> Iterator[Block]:
        yield Title(self.model, f", {self.dtype} on {self.device}")
        yield from super().blocks()
        yield Paragraph(
            f"{sum(leg.evaluations for leg in self.legs):,.1f} evaluations, "
            f"{sum(leg.tokens for leg in self.legs):,} tokens, {self.seconds:,.0f} s"
        )

    def summary(self) -> str:
        return f"{self.model}: {super().summary()}"


def schedule_in_words(schedule: RotarySchedule) -> str:
    """A searched schedule: a method with its parameters, or factors of its own."""
    last = schedule.recipe[-1]
    if last.method == "longrope":
        return "factors of its own"
    shown = {k: v for k, v in last.parameters.items() if not isinstance(v, bool)}
    return str(Recipe(last.method, shown))


def _in_words(leg: Leg) -> list[str]:
    """The choice, with differences that have intervals. Mean scores are in the tables."""
    at, baseline = format_length(leg.length), leg.best_hand_designed
    if leg.method is not None and not leg.evaluations:
        sentences = [f"At {at}, {leg.method} is the best of the hand-designed methods."]
    elif leg.method is not None:
        sentences = [
            f"At {at}, search did not beat {baseline}: {tried_in_words(leg)}.",
            f"The plan follows {leg.method}.",
        ]
    elif leg.by_rule is not None:
        sentences = [
            f"At {at}, Algorithm 1 ends with the lowest perplexity on the documents of its search "
            f"({schedule_in_words(leg.best.schedule)}).",
            f"By ropewalk's rule, on other documents, the choice would be {leg.by_rule}.",
            verdict_in_words(leg) or _failures(leg),
        ]
    else:
        sentences = [
            f"At {at}, the searched schedule ({schedule_in_words(leg.best.schedule)}) was chosen "
            f"over {baseline}, the best hand-designed method.",
            verdict_in_words(leg) or _failures(leg),
        ]
    sentences += [compared_in_words(leg), limited_in_words(leg), short_in_words(leg)]
    if leg.method is None and leg.at_bounds:
        sentences.append(bounds_in_words(leg))
    return sentences


def tried_in_words(leg: Leg) -> str:
    """The best searched schedule on the documents that decided, if it was not chosen."""
    if not leg.history:
        return "the budget ended before a schedule was scored"
    if leg.selection is None:
        return "no searched schedule was as good on both text and answers"
    text = f"loss difference {leg.selection} for the best searched schedule, {leg.best_searched}"
    if leg.selection_text is not None and leg.selection_answers is not None:
        text += f"; in the text {leg.selection_text}, in the answers {leg.selection_answers}"
    if leg.selection.detectable is not None:
        text += f"; these documents would show a difference of {leg.selection.detectable:.3f}"
    return text


def compared_in_words(leg: Leg) -> str:
    *others, last = leg.baselines
    return f"Also compared: {', '.join(others)} and {last}."


def _failures(leg: Leg) -> str:
    """The reason if there is no difference on held-out documents."""
    scores = {
        "the searched schedule": leg.best.reporting,
        leg.best_hand_designed: leg.baselines[leg.best_hand_designed].reporting,
    }
    failed = [name for name, score in scores.items() if score and not np.isfinite(score.score)]
    if not failed:
        return ""
    return f"On held-out documents, the model failed under {' and '.join(failed)}."


def verdict_in_words(leg: Leg) -> str:
    """The searched schedule that was chosen, on held-out documents if there are enough."""
    said = f"the searched schedule's loss minus that of {leg.best_hand_designed} is"
    if leg.held_out is None:
        apart = leg.best.reporting is not None or leg.selection is None
        return "" if apart else f"On the documents that decided, {said} {leg.selection}."
    said = f"On held-out documents, {said} {leg.held_out}"
    match leg.held_out.verdict:
        case "better":
            return f"{said}: the searched schedule is better."
        case "worse":
            return (
                f"{said}: the searched schedule is worse there, unlike on the selection documents. "
                f"The other plan is that of {leg.best_hand_designed}."
            )
    return f"{said}: inconclusive on these documents."


def limited_in_words(leg: Leg) -> str:
    """The effect of the limit on short text; empty if it left all schedules in."""
    if leg.short_limit is None or leg.chosen not in leg.short_costs:
        return ""
    limit = f"`short_limit` ({leg.short_limit:g} nats per token of text at the original length)"
    cost = leg.short_costs[leg.chosen]
    name = leg.method or "the searched schedule"
    if cost.difference.value > leg.short_limit:
        return f"Every good schedule exceeds {limit}; {name} exceeds it least, at {cost}."
    over = [
        f"{other} ({cost})"
        for other, cost in leg.short_costs.items()
        if cost.difference.value > leg.short_limit
    ]
    return f"Beyond {limit}, and not chosen: {', '.join(over)}." if over else ""


def short_in_words(leg: Leg) -> str:
    """The cost of the chosen schedule on short text; empty if that was not measured."""
    if leg.cost_at_original_length is None:
        return ""
    chosen = leg.method or "the searched schedule"
    return (
        f"At the original length, {chosen} changes the loss by {leg.cost_at_original_length}; "
        "lower is better."
    )


def bounds_in_words(leg: Leg) -> str:
    return (
        f"The schedule lies on a bound of the search space, so a better one may lie beyond it: "
        f"{'; '.join(leg.at_bounds)}."
    )
