"""Blocks of schedules, of a search, and of runtimes' support of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ropewalk.blocks import Block, Code, Paragraph, Section
from ropewalk.context_plan import ContextPlan
from ropewalk.costs.sizes import sizes_of
from ropewalk.errors import RopewalkError
from ropewalk.exporting.exported import Exported
from ropewalk.models.config import load_config
from ropewalk.models.source import resolve
from ropewalk.planning.charts import by_step, factors
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.runtimes.serving import serving
from ropewalk.searching.model.results import Found


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
    blocks = [block for leg in found.legs for block in leg.blocks()]
    return Section("Search" if any(leg.history for leg in found.legs) else "Race", tuple(blocks))


def loading(written: Sequence[Exported], folder: Path | None) -> Section:
    """The exports with proof, and the lines that load and serve them."""
    blocks: list[Block] = []
    for each in written:
        proof = "Not tested here."
        if each.agreement is not None:
            proof = f"{each.agreement.runtime} gives {each.agreement}."
        blocks.append(Paragraph(f"`{each.path.name}` is for {each.target}. {proof}"))
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
