"""The page of an extension: what the model does now, what it costs, and how to load it."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TypeVar

from ropewalk.blocks import Block, Cell, Page, Paragraph, Section, Table
from ropewalk.evaluation import tables
from ropewalk.evaluation.verdict import LOOKS, MARGIN, TO_WORK
from ropewalk.lengths import format_length
from ropewalk.pipeline.results import (
    SO_FAR,
    Exports,
    Inspected,
    Judged,
    Training,
    Verified,
    check_version,
    final,
    read_result,
    run_id,
)
from ropewalk.records import EXACT_MATCH
from ropewalk.reports.commands import again
from ropewalk.reports.parts import schedules
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.searching.model.results import Found
from ropewalk.training import charts
from ropewalk.values import Result

R = TypeVar("R", bound=Result)
JUDGES = ("first", "verdict", "trained")
CONDITIONAL = ("search", "verdict")
"""The stages that what others found may make needless."""
NOT_YET = "Not judged yet, so how well the extended model works is unknown."


def stage_of(run: RunOnDisk, name: str, kind: type[R], ending: str = ".json") -> R | None:
    """The result of a stage; None if there is none yet."""
    file = run.path / f"{name}{ending}"
    return read_result(file, name, kind, run_id(run.configuration)) if file.exists() else None


def page(run: RunOnDisk) -> Page:
    check_version(run.configuration, run.path)
    stage = partial(stage_of, run)
    inspected = stage("inspect", Inspected)
    found, trained = stage("search", Found), stage("train", Training)
    exports, verified = stage("export", Exports), stage("verify", Verified)
    judged = {name: own for name in JUDGES if (own := stage(name, Judged)) is not None}
    told = final(judged) if judged else None
    going_on = [own for name in JUDGES if (own := stage(name, Judged, SO_FAR)) is not None]
    names = run.configuration.get("stages")
    asked = [str(name) for name in names] if isinstance(names, list) else []
    sections = [
        *([_exported(run, exports, verified)] if exports else ()),
        *(judged_section(each, goes_on=True) for each in going_on),
        *(judged_section(each, is_final=each is told) for each in reversed(judged.values())),
        *([schedules.of_search(found)] if found else ()),
        *([_trained(trained)] if trained else ()),
    ]
    advice, command = _advice(told, run, exports) if told else ("", "")
    return Page(
        f"{inspected.model}, extended to {format_length(inspected.target_length)} tokens"
        if inspected
        else "A model, extended",
        f"{told.chosen} at {format_length(told.length)}: {told.evidence}." if told else NOT_YET,
        (
            *([f"Before: {told.before}."] if told else ()),
            *(f"{each.chosen} is judged now, by {each.so_far}." for each in going_on),
            *(each.summary() for each in (trained, verified) if each is not None),
        ),
        tuple(section for section in sections if section.blocks),
        tuple(
            name
            for name in asked
            if not (run.path / f"{name}.json").exists() and name not in CONDITIONAL
        ),
        facts=schedules.sizes(run.path / "model"),
        word="" if told is None else told.verdict,
        advice=advice,
        command=command,
    )


def _advice(judged: Judged, run: RunOnDisk, exports: Exports | None) -> tuple[str, str]:
    """Advice on the exported model, and the command that follows it."""
    if judged.verdict == "works":
        load = exports.written[0].moved(run.path).load if exports else ""
        return f"use {judged.chosen}; {judged.price_in_words}.", load
    if judged.verdict == "cannot be judged":
        easier = ("ropewalk", "evaluate", str(run.path / "model"), "--tasks", "passkey,perplexity")
        return "ask an easier task.", shlex.join(easier)
    last = judged.looks[-1] if judged.looks else None
    if judged.verdict == "undecided" and last is not None and last.more is not None:
        more = again(run, "--budget", str(last.documents + last.more))
        return f"read more documents; {judged.price_in_words}.", more
    return "train under it, or extend less far.", again(run, "--train-steps", "200")


def judged_section(judged: Judged, *, is_final: bool = False, goes_on: bool = False) -> Section:
    """What was read within the window and at the target, and every look."""
    looks = Table(
        "Every look at the documents",
        ("documents", "retrieved", "minus the unmodified model within its window", "verdict"),
        tuple(
            (
                Cell(str(each.documents), each.documents),
                Cell(f"{each.rate:.0%}", each.rate),
                tables.gain(EXACT_MATCH.name, each.difference),
                Cell(
                    "between two looks" if goes_on and each.documents not in LOOKS else each.verdict
                ),
            )
            for each in judged.looks
        ),
        f"It works if the interval of the difference lies above {-100 * MARGIN:.0f} points after "
        f"{TO_WORK} documents or more. Each interval is wider than 95%, so that all of the "
        f"{len(LOOKS)} looks that a run may take hold together.",
    )
    shown: list[Block] = []
    if goes_on:
        shown.append(Paragraph(f"{judged.so_far}; {judged.price_in_words}."))
    elif not is_final:
        shown.append(Paragraph(f"Judged before: {judged.summary()}; {judged.price_in_words}."))
    if judged.example is not None:
        shown.append(Paragraph(f"Example: {judged.example}."))
    title = f"{judged.chosen}: retrieval and perplexity"
    return Section(title, (*judged.charts(), *shown, looks))


def _trained(trained: Training) -> Section:
    stage = trained.stage
    name = f"{format_length(stage.length)}, {stage.method}"
    return Section("Training", charts.curves([(name, stage.steps)]))


def _exported(run: RunOnDisk, exports: Exports, verified: Verified | None) -> Section:
    written = [each.moved(run.path) for each in exports.written]
    folder = next((each.path for each in written if each.target == "transformers"), None)
    section = schedules.loading(written, folder)
    more = [Paragraph(f"Left out: {why}", "warning") for why in exports.left_out.values()]
    if verified is not None:
        found = [finding for each in verified.verified for finding in each.findings]
        more += [Paragraph(f"{f.what}: {f.consequence}; {f.remedy}", "warning") for f in found]
    return section._replace(blocks=(*section.blocks, *more))
