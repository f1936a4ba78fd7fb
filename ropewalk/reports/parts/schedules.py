"""Blocks of schedules, of a search, and of runtimes' support of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ropewalk.context_plan import ContextPlan
from ropewalk.costs.sizes import sizes_of
from ropewalk.errors import RopewalkError
from ropewalk.exporting.exported import Exported
from ropewalk.lengths import format_length
from ropewalk.models.config import load_config
from ropewalk.models.source import resolve
from ropewalk.reports.page.blocks import Block, Cell, Code, Paragraph, Section, Table
from ropewalk.reports.schedules import by_step, factors
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.runtimes.serving import serving
from ropewalk.searching.model.results import (
    Found,
    Leg,
    Score,
    bounds_in_words,
    limited_in_words,
    short_in_words,
)

_SCORES = ("method", "score", "perplexity", "retrieved", "documents")
_MEANS = (
    "These are means over few documents, without intervals; the evaluation's have intervals. The "
    "score is what the search minimises."
)
_RACE = (
    "Means over the documents that chose the method; the verdict and its price are of others. A "
    "method that falls behind reads fewer. The score is what the race minimises."
)


def of_plans(plans: Mapping[str, ContextPlan]) -> Section:
    """The factors of plans, by layer type."""
    types = dict.fromkeys(name for plan in plans.values() for name in plan.schedules)
    blocks = []
    for layer_type in types:
        own = {label: plan for label, plan in plans.items() if layer_type in plan.schedules}
        title = "Rescale factors" if len(types) == 1 else f"Rescale factors, {layer_type}"
        blocks.append(factors(by_step(own, layer_type), title))
    return Section("Schedules", tuple(blocks))


def of_search(found: Found) -> Section:
    """The blocks of a search: progress, factors and scores on held-out documents."""
    blocks: list[Block] = []
    for leg in found.legs:
        blocks += [*leg.charts(), _standings(leg), *_on_short_text(leg)]
    return Section("Search" if any(leg.history for leg in found.legs) else "Race", tuple(blocks))


def _standings(leg: Leg) -> Table:
    """Scores on documents that decided nothing; of a race, which keeps none, on those that did."""
    at = format_length(leg.length)
    title = f"Held-out documents, at {at}" if leg.history else f"The race at {at}"
    scores = {n: arm.reporting if leg.history else arm.selection for n, arm in leg.arms.items()}
    return Table(
        title,
        _SCORES,
        tuple((Cell(name), *_score(score)) for name, score in scores.items()),
        _MEANS if leg.history else _RACE,
    )


def _on_short_text(leg: Leg) -> list[Block]:
    """The scores at the original length, if they were measured."""
    blocks: list[Block] = []
    said = [limited_in_words(leg)]
    if leg.at_original_length and leg.history:
        rows = tuple(
            (Cell(leg.shown(name)), *_score(score))
            for name, score in leg.at_original_length.items()
        )
        title = "At the original length, on the beginnings of the same documents"
        blocks.append(Table(title, _SCORES, rows, _MEANS))
        said.append(short_in_words(leg))
    if leg.method is None and leg.at_bounds:
        said.append(bounds_in_words(leg))
    return [*blocks, *map(Paragraph, filter(None, said))]


def _score(score: Score) -> tuple[Cell, ...]:
    return (
        Cell(f"{score.score:.3f}", score.score),
        Cell(f"{score.perplexity:.2f}", score.perplexity),
        Cell(f"{score.retrieval:.0%}", score.retrieval),
        Cell(str(score.documents), score.documents),
    )


def loading(written: Sequence[Exported], folder: Path | None) -> Section:
    """The exports with proof, and the lines that load and serve them."""
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
    if folder is not None:
        blocks += served(folder)
    return Section("Load and serve", tuple(blocks))


def served(folder: Path) -> list[Block]:
    """The line that starts the written folder in each runtime that takes one."""
    try:
        source = resolve(folder)
        rows = serving(source.present_plan, source)
    except RopewalkError:  # it moved, or a runtime's rules refuse it
        return []
    return [
        Code(
            f"Serve it with {ENGINE_NAMES[row.runtime]} ({row.fit}; {row.reason})",
            "\n".join(row.lines),
        )
        for row in rows
        if row.lines and row.runtime in ENGINE_NAMES
    ]


def sizes(folder: Path) -> tuple[str, ...]:
    """The size of the model in a folder, by its config."""
    try:
        weights = sizes_of(load_config(folder)).weights
    except RopewalkError:
        return ()
    big = f"{weights / 1e9:.3g} billion" if weights >= 1e9 else f"{weights / 1e6:.3g} million"
    return (f"model of {big} parameters",)
