"""The page of an extension: what the model does now, what it costs, and how to load it."""

from __future__ import annotations

from typing import TypeVar

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
from ropewalk.reports import training
from ropewalk.reports.chart import Mark
from ropewalk.reports.page.blocks import Block, Cell, Page, Paragraph, Section, Table
from ropewalk.reports.parts import measured, schedules
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.searching.model.results import Found
from ropewalk.values import Result

R = TypeVar("R", bound=Result)
JUDGES = ("first", "verdict", "trained")
CONDITIONAL = ("search", "verdict", "train", "trained")
"""The stages that what others found may make needless."""
NOT_YET = "Not judged yet, so how well the extended model works is unknown."


def page(run: RunOnDisk) -> Page:
    check_version(run.configuration, run.path)

    def stage(name: str, kind: type[R], ending: str = ".json") -> R | None:
        file = run.path / f"{name}{ending}"
        return read_result(file, name, kind, run_id(run.configuration)) if file.exists() else None

    inspected = stage("inspect", Inspected)
    found, trained = stage("search", Found), stage("train", Training)
    exports, verified = stage("export", Exports), stage("verify", Verified)
    judged = {name: own for name in JUDGES if (own := stage(name, Judged)) is not None}
    told = final(judged) if judged else None
    going_on = [own for name in JUDGES if (own := stage(name, Judged, SO_FAR)) is not None]
    names = run.configuration.get("stages")
    asked = [str(name) for name in names] if isinstance(names, list) else []
    sections = [
        *(_judged(each, run) for each in judged.values()),
        *(_judged(each, run, goes_on=True) for each in going_on),
        *([schedules.of_search(found)._replace(command=run.made_by)] if found else ()),
        *([_trained(trained, run)] if trained else ()),
        *([_exported(run, exports, verified)] if exports else ()),
    ]
    return Page(
        f"{_name(inspected)}, extended to {_target(run)} tokens",
        " ".join(
            [
                f"{told.summary()}. Before: {told.before}." if told else NOT_YET,
                *(f"{each.chosen} is judged now, by {each.so_far}." for each in going_on),
            ]
        ),
        tuple(e.summary() for e in (found, trained, verified) if e is not None),
        tuple(section for section in sections if section.blocks),
        tuple(
            name
            for name in asked
            if not (run.path / f"{name}.json").exists() and name not in CONDITIONAL
        ),
        facts=schedules.sizes(run.path / "model"),
        advice="" if told is None else _advice(told),
    )


def _advice(judged: Judged) -> str:
    """Advice on the exported model."""
    match judged.verdict:
        case "works":
            return f"Use {judged.chosen}; {judged.price_in_words}."
        case "does not work":
            return f"Do not use {judged.chosen} at this length: train under it, or extend less far."
    return f"Measure more before you rely on {judged.chosen}; {judged.price_in_words}."


def _name(inspected: Inspected | None) -> str:
    return "A model" if inspected is None else inspected.model


def _target(run: RunOnDisk) -> str:
    target = run.configuration.get("target_length")
    return format_length(target) if isinstance(target, int) else "more"


def _judged(judged: Judged, run: RunOnDisk, *, goes_on: bool = False) -> Section:
    """What was read within the window and at the target, and every look."""
    looks = Table(
        "Looks",
        ("documents", "retrieved", "minus the unmodified model within its window", "verdict"),
        tuple(
            (
                Cell(str(each.documents), each.documents),
                Cell(f"{each.rate:.0%}", each.rate),
                measured.gain(
                    EXACT_MATCH.name,
                    Mark(each.documents, each.rate - each.reference, each.low, each.high),
                ),
                Cell(
                    "between two looks" if goes_on and each.documents not in LOOKS else each.verdict
                ),
            )
            for each in judged.looks
        ),
        f"It works if the interval of the difference lies above {-100 * MARGIN:.0f} points after "
        f"{TO_WORK} documents or more. Each interval is wider than 95%, so that all of "
        f"{len(LOOKS)} looks hold together.",
    )
    said = judged.so_far if goes_on else judged.summary()
    shown: list[Block] = [Paragraph(f"{said}; {judged.price_in_words}.")]
    if judged.example is not None:
        shown.append(Paragraph(f"{judged.example}."))
    tables = (
        measured.at_target(judged.pooled, length, judged.chosen)
        for length in (judged.window, judged.length)
    )
    title = f"{judged.chosen}: retrieval and perplexity"
    return Section(title, (*shown, *judged.charts(), *tables, looks), run.made_by)


def _trained(trained: Training, run: RunOnDisk) -> Section:
    stage = trained.stage
    name = f"{format_length(stage.length)}, {stage.method}"
    return Section("Training", training.curves([(name, stage.steps)]), run.made_by)


def _exported(run: RunOnDisk, exports: Exports, verified: Verified | None) -> Section:
    written = [each.moved(run.path) for each in exports.written]
    folder = next((each.path for each in written if each.target == "transformers"), None)
    section = schedules.loading(written, run.plan, folder)
    more = [Paragraph(f"Left out: {why}", "warning") for why in exports.left_out.values()]
    if verified is not None:
        found = [finding for each in verified.verified for finding in each.findings]
        more += [Paragraph(f"{f.what}: {f.consequence}; {f.remedy}", "warning") for f in found]
    return section._replace(blocks=(*section.blocks, *more))
