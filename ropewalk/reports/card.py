"""The card of an export: its README.md, with the front matter of a model hub and its evidence.

A card of a run has the run's verdict; that of a lone export has its plan, and says that nobody
judged it. Nothing is calculated here: figures are those of the run's own records.

The hub knows four relations to a base model: adapter, finetune, merge and quantized. An extension
is the nearest to the second, even if its weights are unchanged.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ropewalk.blocks import Block, Cell, Code, Page, Paragraph, Section, Table, Title, cells
from ropewalk.chart import words
from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.errors import InputError
from ropewalk.exporting.manifest import SOURCE_CARD, digests_of
from ropewalk.lengths import format_length
from ropewalk.models.source import resolve
from ropewalk.outputs import UNSIGNED
from ropewalk.pipeline.results import TRAINED, Exports, Judged, Verified, final
from ropewalk.reports.commands.extend import JUDGES, judged_section, stage_of
from ropewalk.reports.markdown import escaped, markdown
from ropewalk.reports.parts import places, schedules
from ropewalk.run_directory import read_arguments
from ropewalk.run_on_disk import RunOnDisk

HUB_ID = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}", re.ASCII)
_KEPT = ("license", "license_name", "license_link", "language", "pipeline_tag")
"""The members of its source's front matter that an extension keeps."""
_VALUES = {
    "base_model": HUB_ID.pattern,
    "license": r"[a-z0-9][a-z0-9.+-]{0,63}",
    "license_name": r"[A-Za-z0-9][\w .+-]{0,63}",
    "license_link": r"https://[\w./%~#?=+@-]{1,200}|LICENSE[\w.-]{0,40}",
    "language": r"[a-z]{2,3}(-[A-Za-z0-9]{1,8})*|code|multilingual",
    "pipeline_tag": r"[a-z0-9-]{1,64}",
}
_FRONT = re.compile(r"\s*---\n(.*?)\n---[ \t]*(?:\n|$)", re.DOTALL)
_MOST = 2**16
_IN_PYTHON = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")"""


class Card(NamedTuple):
    text: str
    pictures: Mapping[str, str]
    """SVG by file name."""
    title: str
    verdict: str


def stated(card: Path) -> dict[str, list[str]]:
    """The members of a card's front matter that are known here; any other form is not stated."""
    if not card.is_file():
        return {}
    with card.open(encoding="utf-8", errors="replace") as file:
        front = _FRONT.match(file.read(_MOST))
    members: dict[str, list[str]] = {}
    key = ""
    for line in front[1].splitlines() if front else ():
        member, item = re.match(r"(\w+):(.*)", line), re.match(r" *- +(.*)", line)
        key = member[1] if member else key if item else ""
        values = member[2] if member else item[1] if item else ""
        for value in values.strip(" []").split(","):
            word = value.strip(" '\"")
            if key in _VALUES and re.fullmatch(_VALUES[key], word, re.ASCII):
                members.setdefault(key, []).append(word)
    return members


def _in_file(file: Path) -> dict[str, list[str]]:
    """The same members as a GGUF file states them."""
    values = resolve(file).header.values
    members = {key: str(values.get(f"general.{key.replace('_', '.')}", "")) for key in _KEPT}
    return {k: [v] for k, v in members.items() if re.fullmatch(_VALUES[k], v, re.ASCII)}


def card(export: Path, run: RunOnDisk | None, base_model: str) -> Card:
    """The card of an export, a folder or a GGUF file of a run; both paths are absolute, and none of
    them is in it."""
    is_file = export.is_file()
    folder = export.parent if is_file else export
    source = _in_file(export) if is_file else stated(folder / SOURCE_CARD)
    plan = ContextPlan.read(folder / PLAN)
    judged = None if run is None else _judged(run, export, plan)
    if is_file and judged is None:
        raise InputError(
            f"{export}: was not exported by a run of `extend`, so there is no evidence for a card"
        )
    name = (base_model or plan.model).rstrip("/").rpartition("/")[2]
    title = f"{name}, extended to {format_length(plan.target_length)} tokens"
    sections = [
        Section("", tuple(_outcome(plan, judged))),
        Section("Retrieval and perplexity", tuple(_evidence(judged))),
        Section("Method", tuple(_method(plan))),
        Section("Load and serve", tuple(_loading(export, run))),
        Section("Not checked", tuple(_unchecked(run, judged))),
        Section("To repeat", tuple(_repeating(export, plan, run, base_model or plan.model))),
        Section("Source", tuple(_source(folder, base_model or name, source))),
    ]
    page = Page(title, "", (), tuple(sections), notes=() if run is None else run.notes()[2:])
    root = re.compile(rf"{re.escape(str(folder))}(?![\w.-])|{re.escape(str(folder.parent))}/")
    page = places.with_texts(page, partial(root.sub, lambda at: "" if at[0].endswith("/") else "."))
    page = places.shareable(page, [folder.parent])
    pictures: dict[str, str] = {}
    parts = [_front_matter(plan, source, base_model, is_file=is_file), f"# {escaped(page.title)}"]
    for section in filter(lambda each: each.blocks, page.sections):
        parts += [f"## {escaped(section.title)}"] if section.title else []
        parts.append(markdown(section.blocks, pictures))
    parts += [*map(escaped, page.notes), f"<!-- {UNSIGNED} -->\n"]
    verdict = f"{judged.verdict} at {format_length(judged.length)}" if judged else "not judged"
    return Card("\n\n".join(parts), pictures, title, verdict)


def _judged(run: RunOnDisk, export: Path, plan: ContextPlan) -> Judged:
    """The verdict of a run on this very export; that of others is refused."""
    exports = stage_of(run, "export", Exports)
    results = {name: each for name in JUDGES if (each := stage_of(run, name, Judged)) is not None}
    if exports is None or not results:
        raise InputError(
            f"{run.path}: has no export yet; run the command that began it again, which continues "
            "where it stopped"
        )
    judged, kept = final(results), exports.sha256
    other = [name for name, digest in digests_of(export).items() if kept.get(name) != digest]
    if other or plan.id != judged.plan.id:
        raise InputError(
            f"{run.path / (other or [PLAN])[0]}: is not the one that {run.path} exported and "
            f"judged; give the run that wrote {export.name}"
        )
    return judged


def _front_matter(
    plan: ContextPlan, source: Mapping[str, list[str]], base_model: str, *, is_file: bool
) -> str:
    """YAML, in which every value is a JSON string or a list of them. Of two licences, neither is
    the one."""
    source = {k: values for k, values in source.items() if k == "language" or len(values) == 1}
    method = re.sub("[^a-z0-9]+", "-", plan.methods.lower()).strip("-")
    base = {"base_model": base_model, "base_model_relation": "finetune"} if base_model else {}
    members: dict[str, object] = {
        **base,
        "library_name": "gguf" if is_file else "transformers",
        "pipeline_tag": "text-generation",
        **{k: source[k] if k == "language" else source[k][0] for k in _KEPT if k in source},
        "tags": ["ropewalk", "rope", "long-context", *["gguf"] * is_file, *filter(None, [method])],
    }
    lines = (f"{key}: {json.dumps(value)}" for key, value in members.items())
    return "\n".join(("---", *lines, "---"))


def _outcome(plan: ContextPlan, judged: Judged | None) -> Iterator[Block]:
    """The verdict, and each figure before and after."""
    if judged is None:
        text = "How well it works was not measured: this export was written outside a run."
        yield Paragraph(text, "warning")
        return
    yield Title(judged.verdict.capitalize(), f" at {format_length(judged.length)} tokens.")
    yield Paragraph(f"{judged.chosen} {judged.evidence}; {judged.price_in_words}.", "verdict")
    rows = [cells("context length", format_length(judged.window), format_length(judged.length))]
    for chart in judged.charts():
        sides = [{mark.x: words(mark, chart.y) for mark in series.marks} for series in chart.series]
        for x in chart.places:
            rows.append(
                cells(f"{chart.title} at {chart.x.text(x)}", *(at.get(x, "–") for at in sides))
            )
    yield Table("", ("", "before", "after"), tuple(rows), "With 95% intervals.")


def _evidence(judged: Judged | None) -> Iterator[Block]:
    """The pictures of the verdict, and how it came about."""
    if judged is not None:
        yield from (judged.charts()[0], *judged_section(judged, is_final=True).blocks)


def _method(plan: ContextPlan) -> Iterator[Block]:
    """The parameters of each method, and the rescale factors that follow from them."""
    recipes = dict.fromkeys(
        step for layer_type in plan.schedules for step in plan.longest(layer_type).recipe
    )
    rows = []
    for recipe in recipes:
        values = {key: value for key, value in recipe.parameters.items() if value is not None}
        numbers = ", ".join(f"{key}={value}" for key, value in values.items())
        rows.append(cells(recipe.method, numbers))
    yield Table("", ("method", "parameters"), tuple(rows), f"`{PLAN}` has all factors exactly.")
    yield from schedules.of_plans({plan.methods: plan}).blocks


def _loading(export: Path, run: RunOnDisk | None) -> Iterator[Block]:
    """The lines that load and serve it, here in its folder."""
    is_folder = export.is_dir()
    if is_folder:
        yield Code("In this folder, with transformers:", _IN_PYTHON)
    beside = ", which the same run wrote beside this folder" * is_folder
    exports = None if run is None else stage_of(run, "export", Exports)
    for each in exports.written if run and exports else ():
        if each.path.suffix:  # a file
            moved = each.moved(Path())
            yield Code(
                f"With {moved.target}, on `{moved.path.name}`{beside}:",
                "\n".join((moved.load, *moved.elsewhere)),
            )
    if is_folder:
        yield from schedules.served(export)


def _unchecked(run: RunOnDisk | None, judged: Judged | None) -> Iterator[Block]:
    if run is not None and judged is not None:
        exports, verified = stage_of(run, "export", Exports), stage_of(run, "verify", Verified)
        for each in exports.written if exports else ():
            yield from (Paragraph(warning) for warning in each.warnings)
        for name, why in exports.left_out.items() if exports else ():
            yield Paragraph(f"{name} was left out: {why}")
        for file in verified.verified if verified else ():
            yield from (Paragraph(f"{f.what}: {f.consequence}.") for f in file.findings)
            yield from (Paragraph(line) for line in file.not_established)
        lengths = ", ".join(map(format_length, judged.lengths))
        yield Paragraph(
            f"Retrieval was measured at {lengths} tokens, perplexity at the first and the last of "
            "these, on documents with planted facts; other lengths and other tasks were not."
        )
    trained = judged is not None and judged.chosen == TRAINED
    weights = "were trained further" if trained else "are those of the source"
    yield Paragraph(
        f"No benchmark of knowledge, instructions or safety was run; the weights {weights}."
    )


def _repeating(
    export: Path, plan: ContextPlan, run: RunOnDisk | None, model: str
) -> Iterator[Block]:
    """The commands that give the figures again."""
    kind, name = ("folder", ".") if export.is_dir() else ("file", export.name)
    model = model if export.is_dir() else plan.model  # a hub's name may be of a folder
    length = format_length(plan.target_length)
    if run is None:
        measured = f"ropewalk evaluate . --plan {PLAN} --lengths {length}"
        yield Code("Retrieval and perplexity:", measured)
    else:
        line = ["ropewalk", "extend", model, "--to", length]
        for key, value in read_arguments(run.path, run.command).items():
            repeated = key in ("model", "to", "run") or value is False
            if not repeated and isinstance(value, str | int | float):
                line += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
        yield Code(f"Verdict, retrieval and perplexity, and this {kind}:", shlex.join(line))
    title = "Whether the files are whole and follow their plan:"
    yield Code(title, f"ropewalk verify {name}")


def _source(folder: Path, name: str, source: Mapping[str, list[str]]) -> Iterator[Block]:
    licence = " ".join(source.get("license", ())) or "none stated"
    if named := source.get("license_name"):
        licence += f" ({named[0]})"
    has_card = (folder / SOURCE_CARD).is_file()
    linked = Cell(SOURCE_CARD, link=SOURCE_CARD) if has_card else Cell("none")
    rows = ((Cell(name), Cell(licence), linked),)
    yield Table("", ("model", "licence", "its own card"), rows)
    if any(re.search(r"(^|-)nd(-|$)", each) for each in source.get("license", ())):
        yield Paragraph(
            f"The source's licence, {licence}, does not allow derivatives to be shared. Whether "
            "this export is one is for whoever shares it to decide.",
            "warning",
        )
