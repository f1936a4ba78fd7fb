"""Blocks of schedules, of a search, and of what runtimes make of a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ropewalk.context_plan import ContextPlan
from ropewalk.costs.sizes import sizes_of
from ropewalk.errors import RopewalkError
from ropewalk.exporting.exported import Exported
from ropewalk.lengths import format_length
from ropewalk.models.config import load_config
from ropewalk.models.source import resolve
from ropewalk.reports.page.blocks import (
    Axis,
    Block,
    Cell,
    Chart,
    Code,
    Guide,
    Mark,
    Paragraph,
    Section,
    Series,
    Table,
)
from ropewalk.reports.schedules import FactorCurve, factor_curves
from ropewalk.reports.search import factors_by_label
from ropewalk.runtimes import targets
from ropewalk.runtimes.features import matrix
from ropewalk.runtimes.serving import serving
from ropewalk.searching.model.results import (
    Arm,
    Found,
    Leg,
    Score,
    limited_in_words,
    offers_of,
    short_in_words,
)

_SCORES = ("method", "score", "perplexity", "retrieved", "documents")
_MEANS = (
    "These are means over few documents, without intervals; the evaluation's have intervals. The "
    "score is what the search minimises."
)


def factors(curves: list[FactorCurve], title: str, main: str | None = None) -> Chart:
    """λ by pair."""
    unturned = next((c.unturned_from for c in curves if c.unturned_from is not None), None)
    return Chart(
        title,
        Axis("pair, from fast to slow"),
        Axis("rescale factor λ", "log2"),
        tuple(
            Series(
                curve.label,
                tuple(Mark(i, float(value)) for i, value in enumerate(curve.factors)),
                curve.label.partition(",")[0] == main,
            )
            for curve in curves
        ),
        () if unturned is None else (Guide(unturned, "no full turn in pretraining"),),
    )


def of_plans(plans: Mapping[str, ContextPlan]) -> Section:
    """The factors of plans, by layer type."""
    types = dict.fromkeys(name for plan in plans.values() for name in plan.schedules)
    blocks = []
    for layer_type in types:
        own = {label: plan for label, plan in plans.items() if layer_type in plan.schedules}
        title = "Rescale factors" if len(types) == 1 else f"Rescale factors, {layer_type}"
        blocks.append(factors(factor_curves(own, layer_type), title))
    return Section("Schedules", tuple(blocks))


def of_search(found: Found) -> Section:
    """The blocks of a search: progress, factors and scores on held-out documents."""
    blocks: list[Block] = []
    for leg in found.legs:
        blocks += [_progress(leg), _factors(leg), _standings(leg)]
        blocks += [*_trade_off(leg), *_on_short_text(leg)]
    return Section("Search", tuple(blocks))


def _progress(leg: Leg) -> Chart:
    hand_designed = sorted(
        (score, name) for name, score in leg.beside_history.items() if math.isfinite(score)
    )
    curve = tuple(
        Mark(point.tokens, point.score) for point in leg.history if math.isfinite(point.score)
    )
    return Chart(
        f"Search at {format_length(leg.length)}",
        Axis("tokens scored"),
        Axis("score (lower is better)"),
        (Series("searched schedules: the best so far", curve, True),),
        horizontals=tuple(Guide(s, f"best hand-designed: {n}") for s, n in hand_designed[:1]),
        steps=True,
        caption="On the documents of the search, whose best is below the line by selection too; "
        "the table of held-out documents compares without bias.",
    )


def _factors(leg: Leg) -> Chart:
    schedules = {name: arm.schedule for name, arm in _arms(leg).items()}
    return factors(factors_by_label(schedules), "Rescale factors by method", _chosen(leg))


def _standings(leg: Leg) -> Table:
    return Table(
        f"Held-out documents, at {format_length(leg.length)}",
        _SCORES,
        tuple((Cell(name), *_score(arm.reporting)) for name, arm in _arms(leg).items()),
        _MEANS,
    )


def _trade_off(leg: Leg) -> list[Block]:
    """Each schedule's score at the target, and its cost on short text."""
    offers = offers_of(leg)
    if leg.short_limit is None or not offers:
        return []
    chart = Chart(
        "The target against short text",
        Axis(f"score at {format_length(leg.length)} (lower is better)"),
        Axis("nats a token, at the original length"),
        tuple(
            Series(
                _chosen(leg) if own.label == leg.chosen else own.label,
                (Mark(own.score, own.cost, own.low, own.high),),
                own.label == leg.chosen,
            )
            for own in offers
        ),
        horizontals=(Guide(leg.short_limit, "limit"),),
        caption="Of the text, above the unmodified model, on documents that decided; the best at "
        "the target is taken among those below the limit.",
    )
    return [chart]


def _on_short_text(leg: Leg) -> list[Block]:
    """The scores at the original length, where they were measured."""
    if not leg.at_original_length:
        return []
    rows = tuple(
        (Cell(_chosen(leg) if name == leg.chosen else name), *_score(score))
        for name, score in leg.at_original_length.items()
    )
    title = "At the original length, on the beginnings of the same documents"
    said = [*filter(None, (limited_in_words(leg), short_in_words(leg)))]
    return [Table(title, _SCORES, rows, _MEANS), *map(Paragraph, said)]


def _chosen(leg: Leg) -> str:
    return f"{leg.chosen} (chosen)"


def _arms(leg: Leg) -> dict[str, Arm]:
    """The chosen schedule, and the hand-designed ones beside it."""
    others = {name: arm for name, arm in leg.baselines.items() if name != leg.chosen}
    return {_chosen(leg): leg.best, **others}


def _score(score: Score) -> tuple[Cell, ...]:
    return (
        Cell(f"{score.score:.3f}", score.score),
        Cell(f"{score.perplexity:.2f}", score.perplexity),
        Cell(f"{score.retrieval:.0%}", score.retrieval),
        Cell(str(score.documents), score.documents),
    )


def loading(written: Sequence[Exported], plan: ContextPlan | None, folder: Path | None) -> Section:
    """The exports with proof, the lines that load them, and each runtime's support."""
    blocks: list[Block] = []
    for each in written:
        proof = "Not tested here."
        if each.agreement is not None:
            proof = f"{each.agreement.runtime} gives {each.agreement}."
        blocks.append(Paragraph(f"{each.path.name} is for {each.target}. {proof}"))
        blocks += [Paragraph(warning, "warning") for warning in each.warnings]
        blocks.append(Code(f"Load {each.path.name}", "\n".join((each.load, *each.elsewhere))))
        if each.overrides:
            blocks.append(Code("Or run the source itself under the plan", each.overrides))
    if plan is not None and folder is not None:
        blocks += _served(folder)
        blocks.append(_in_runtimes(plan, folder))
    return Section("Load it", tuple(blocks))


def _served(folder: Path) -> list[Block]:
    """The line that starts the written folder in each runtime that takes one."""
    try:
        source = resolve(folder)
        rows = serving(source.present_plan, source)
    except RopewalkError:  # it moved, or a runtime's rules refuse it: the table says why
        return []
    return [
        Code(f"Serve it with {row.runtime} ({row.fit}; {row.reason})", "\n".join(row.lines))
        for row in rows
        if row.lines and row.runtime in ("vllm", "sglang")
    ]


def sizes(folder: Path) -> tuple[str, ...]:
    """How large the model in a folder is, by its config."""
    try:
        weights = sizes_of(load_config(folder)).weights
    except RopewalkError:
        return ()
    big = f"{weights / 1e9:.3g} billion" if weights >= 1e9 else f"{weights / 1e6:.3g} million"
    return (f"model of {big} parameters",)


def _in_runtimes(plan: ContextPlan, folder: Path) -> Block:
    """How each stock runtime supports each part of a plan."""
    try:
        rows = matrix(plan, load_config(folder))
    except RopewalkError as error:
        return Paragraph(f"Other runtimes' support is unknown: {error}", "warning")
    return Table(
        "How each runtime supports the plan",
        ("part of the plan", *targets()),
        tuple(
            (Cell(feature), *(Cell(str(cells[runtime])) for runtime in targets()))
            for feature, cells in rows.items()
        ),
    )
