"""Blocks of schedules, of a search, and of runtimes' support of a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ropewalk.blocks import Block, Code, Paragraph, Section
from ropewalk.context_plan import ContextPlan
from ropewalk.costs.memory_and_time import GIB, HALF
from ropewalk.costs.sizes import sizes_of
from ropewalk.errors import InputError, RopewalkError
from ropewalk.exporting.exported import Exported
from ropewalk.exporting.manifest import check_unchanged
from ropewalk.lengths import format_length
from ropewalk.models.config import load_config
from ropewalk.models.source import resolve
from ropewalk.planning.tables import by_step, factors
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.runtimes.serving import NOT_RUN, Serving, serving
from ropewalk.searching.model.results import SearchResult


def of_plans(plans: Mapping[str, ContextPlan]) -> Section:
    """The factors of plans, by layer type."""
    types = dict.fromkeys(name for plan in plans.values() for name in plan.schedules)
    blocks = []
    for layer_type in types:
        shown = {label: plan for label, plan in plans.items() if layer_type in plan.schedules}
        title = "Rescale factors" if len(types) == 1 else f"Rescale factors, {layer_type}"
        blocks.append(factors(by_step(shown, layer_type), title))
    return Section("Schedules", tuple(blocks))


def of_search(search: SearchResult, said: Sequence[str] = ()) -> Section:
    """The blocks of a search, without sentences that were said: scores, progress and factors."""
    title = "Search" if any(leg.history for leg in search.legs) else "Methods compared"
    blocks = (block for leg in search.legs for block in leg.blocks())
    return Section(title, tuple(b for b in blocks if getattr(b, "text", None) not in said))


def loading(
    written: Sequence[Exported],
    folder: Path | None,
    shown: str = "",
    window: int = 0,
    target: int = 0,
) -> Section:
    """The lines that load and serve the exports, with proof; `shown` is not repeated."""
    blocks: list[Block] = []
    for each in written:
        line, proof = pasted(each), "It was not run here."
        tested = "not run here"
        if each.agreement is not None:
            proof = f"{each.agreement.runtime} gives {each.agreement}."
            reach = each.agreement.length
            tested = f"compared up to position {reach:,}" if reach else "compared here"
            if reach and window:
                reaches = "beyond" if reach > window else "no farther than"
                rest = f"; longer texts, up to {format_length(target)}, were not compared"
                proof += f" This is {reaches} the original window of {format_length(window)}"
                proof += f"{rest * (reach <= 0.99 * target)}."
        is_shown = line == shown
        blocks.append(Code(f"{each.target} ({tested})", "" if is_shown else line))
        above = "Load it by the lines at the top. " * is_shown
        blocks.append(Paragraph(f"{above}`{each.path.name}`: {proof}", "quiet"))
        blocks += [Paragraph(warning, "warning") for warning in each.warnings]
        if each.path == folder and not is_shown:
            blocks += settings(folder)
        if each.elsewhere:
            blocks.append(Code("Ollama (not run here; the same file)", "\n".join(each.elsewhere)))
        if each.overrides:
            blocks.append(Code("Or the original model, with the settings given", each.overrides))
    if folder is not None:
        try:
            _as_written(folder)
        except InputError as error:
            blocks.append(Paragraph(str(error), "warning"))
        blocks += served(folder)
    return Section("Load and serve", tuple(blocks))


def _as_written(folder: Path) -> Path:
    """The folder of an export, refused if its config was edited: a page is of what was written."""
    check_unchanged(folder, only=("config.json",))
    return folder


def settings(folder: Path) -> list[Block]:
    """The RoPE settings in a folder's config, which the lines next to them load."""
    try:
        config = load_config(_as_written(folder))
    except RopewalkError:
        return []
    values = {key: config[key] for key in _ROPE if config.get(key)}
    # A list of factors stands on one line.
    text = re.sub(r"\[[^]]*\]", lambda at: " ".join(at[0].split()), json.dumps(values, indent=2))
    return [Code(f"These RoPE settings are in {folder / 'config.json'}: nothing to paste.", text)]


_ROPE = "max_position_embeddings", "rope_theta", "rope_parameters", "rope_scaling"
_IN_PYTHON = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = {}
model = AutoModelForCausalLM.from_pretrained(folder)
"""
_CONTINUED = """\
tokenizer = AutoTokenizer.from_pretrained(folder)
prompt = tokenizer("Your text", return_tensors="pt")
answer = model.generate(**prompt, max_new_tokens=50)
print(tokenizer.decode(answer[0]))
"""


def pasted(each: Exported) -> str:
    """The lines of Python that load a folder and continue a text; a command as it is."""
    if "from_pretrained" not in each.load:
        return each.load
    lines = _IN_PYTHON.format(repr(str(each.path)))
    if not any(each.path.glob("tokenizer*")):
        return lines.replace(", AutoTokenizer", "").rstrip()
    return f"{lines}{_CONTINUED}".rstrip()


def served(folder: Path) -> list[Block]:
    """The line that starts the written folder in each runtime that takes one."""
    try:
        source = resolve(_as_written(folder))
        rows = serving(source.present_plan, source)
    except RopewalkError:  # it moved, or a runtime's rules refuse it
        return []
    return [
        Code(f"{ENGINE_NAMES[row.runtime]} ({_predicted(row)})", "\n".join(row.lines))
        for row in rows
        if row.lines and row.runtime in ENGINE_NAMES
    ]


def _predicted(row: Serving) -> str:
    """How well a runtime follows a folder, by rules alone."""
    fit = "its code supports this schedule; not run here"
    if row.fit != "exact":
        fit = f"not run here; {row.fit}"
    reason = row.reason.rpartition(NOT_RUN)[2].strip("; ")
    return f"{fit}: {reason}" if reason else fit


def sizes(folder: Path) -> tuple[str, ...]:
    """The size of the model in a folder, by its config."""
    try:
        weights = sizes_of(load_config(_as_written(folder))).weights
    except RopewalkError:
        return ()
    big = f"{weights / 1e9:.3g} billion" if weights >= 1e9 else f"{weights / 1e6:.2g} million"
    return (f"{big} parameters",)


def resources(folder: Path, window: int, length: int) -> str:
    """The memory and arithmetic of a text of the window and one of a length, by the config."""
    try:
        model = sizes_of(load_config(_as_written(folder)))
    except RopewalkError:
        return ""
    near, far = (f"{format_length(n)} tokens" for n in (window, length))
    short, long = (_bytes(HALF * model.cache(n)) for n in (window, length))
    times = model.operations(length) / model.operations(window)
    return (
        f"KV cache: {short} at {near}, {long} at {far}. Reading {far} takes {times:.1f} times the "
        f"computation of {near}. Calculated for 16-bit numbers, not measured."
    )


def _bytes(count: float) -> str:
    for unit, size in (("GiB", GIB), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 2**10:.3g} KiB"
