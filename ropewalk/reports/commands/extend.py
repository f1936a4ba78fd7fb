"""The page of an extension: what the model does now, what it costs, and how to load it."""

from __future__ import annotations

from typing import TypeVar

from ropewalk.evaluation.results import summarise
from ropewalk.lengths import format_length
from ropewalk.pipeline.results import (
    Compared,
    EvaluatedExtension,
    Exports,
    Inspected,
    Judged,
    ShortText,
    Training,
    Verified,
    read_result,
    run_id,
)
from ropewalk.reports import training
from ropewalk.reports.comparison import gained, named_task
from ropewalk.reports.page.blocks import Block, Cell, Page, Paragraph, Section, Table
from ropewalk.reports.parts import measured, schedules
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.searching.model.results import Found
from ropewalk.values import Result

R = TypeVar("R", bound=Result)


def page(run: RunOnDisk) -> Page:
    def stage(name: str, kind: type[R]) -> R | None:
        file = run.path / f"{name}.json"
        return read_result(file, name, kind, run_id(run.configuration)) if file.exists() else None

    inspected, evaluated = stage("inspect", Inspected), stage("evaluate", EvaluatedExtension)
    compared, found = stage("compare", Compared), stage("search", Found)
    short, exports = stage("short", ShortText), stage("export", Exports)
    verified, trained = stage("verify", Verified), stage("train", Training)
    judged = stage("verdict", Judged)
    names = run.configuration.get("stages")
    asked = [str(name) for name in names] if isinstance(names, list) else []
    sections = [
        *(_measured(run, evaluated) if evaluated else _so_far(run)),
        *([_short(short, run, evaluated)] if short else ()),
        *([schedules.of_search(found)._replace(command=run.made_by)] if found else ()),
        *([_trained(trained, run)] if trained else ()),
        *([_ranked(compared)] if compared else ()),
        *([_exported(run, exports, verified)] if exports else ()),
    ]
    return Page(
        f"{_name(inspected)}, extended to {_target(run)} tokens",
        _verdict(inspected, evaluated),
        tuple(e.summary() for e in (found, trained, short, verified) if e is not None),
        tuple(section for section in sections if section.blocks),
        tuple(
            name
            for name in asked
            if not (run.path / f"{name}.json").exists()
            and not (name == "train" and evaluated and run.configuration.get("train_if_needed"))
        ),
        facts=schedules.sizes(run.path / "model"),
        advice="" if judged is None else _advice(judged, short),
    )


def _advice(judged: Judged, short: ShortText | None) -> str:
    """Advice on the exported model."""
    said = f"{judged.summary()}."
    price = "" if short is None else f"; {short.price}"
    match judged.verdict:
        case "works":
            return f"Use {judged.chosen}{price}. It {said}"
        case "undecided":
            return f"Measure more samples before you rely on {judged.chosen}{price}. It is {said}"
    return (
        f"Do not use {judged.chosen} at this length: train under it, or extend less far. It {said}"
    )


def _name(inspected: Inspected | None) -> str:
    return "A model" if inspected is None else inspected.model


def _target(run: RunOnDisk) -> str:
    target = run.configuration.get("target_length")
    return format_length(target) if isinstance(target, int) else "more"


def _verdict(inspected: Inspected | None, evaluated: EvaluatedExtension | None) -> str:
    if evaluated is None or inspected is None:
        return "Not evaluated yet, so how well the extended model works is unknown."
    at = format_length(inspected.target_length)
    told = (
        f"At {at} tokens, extended by {evaluated.chosen}: {evaluated.after}. "
        f"Before: {evaluated.before}."
    )
    other = evaluated.best_hand_designed
    if other != evaluated.chosen:
        told += f" The best hand-designed method, {other}: {evaluated.at_target[other]}."
    return told


def _so_far(run: RunOnDisk) -> list[Section]:
    """The scores from before the evaluation ended."""
    section = measured.by_task(summarise(run.records), None)
    return [section._replace(title="Scored so far, by context length", command=run.made_by)]


def _measured(run: RunOnDisk, evaluated: EvaluatedExtension) -> list[Section]:
    at, target = evaluated.original_length, max(r.length for r in evaluated.results)
    first = Section(
        "Retrieval and perplexity",
        (
            measured.at_target(evaluated.pooled, target, evaluated.chosen),
            *evaluated.charts(),
            measured.compared(
                evaluated.comparisons,
                f"At the target length. {measured.HOW}",
            ),
        ),
    )
    sections = [
        first,
        measured.by_task(evaluated.results, at, main=evaluated.chosen),
        measured.by_depth(run.records),
        measured.by_position(run.records, at, evaluated.chosen),
    ]
    return [section._replace(command=run.made_by) for section in sections]


def _trained(trained: Training, run: RunOnDisk) -> Section:
    stage = trained.stage
    name = f"{format_length(stage.length)}, {stage.method}"
    return Section("Training", training.curves([(name, stage.steps)]), run.made_by)


def _short(short: ShortText, run: RunOnDisk, evaluated: EvaluatedExtension | None) -> Section:
    rows = tuple(
        (
            Cell(named_task(d.task, d.metric)),
            Cell(format_length(d.length), d.length),
            measured.gain(d.metric, gained(d.metric, d.length, d.difference, d.low, d.high)),
            measured.p_value(d.adjusted_p),
        )
        for d in short.differences
    )
    table = Table(
        f"{short.chosen} against the unmodified model, within the original length",
        ("task", "length", "gain", "p (Holm)"),
        rows,
        "On the same samples, with 95% intervals: points of right answers, or nats per token by "
        "which the loss is lower. Below zero the method costs.",
    )
    blocks: list[Block] = [Paragraph(short.summary())]
    if evaluated is not None:
        at = evaluated.original_length
        blocks += measured.against_short(run.records, at, short.chosen).blocks
    blocks += [table] if rows else []
    return Section("Long context against short text", tuple(blocks), run.made_by)


def _ranked(compared: Compared) -> Section:
    names = [*dict.fromkeys(name for row in compared.ranked for name, _ in row.cells)]
    table = Table(
        "Best first",
        ("", "method", *(names or ["why"])),
        tuple(
            (
                Cell(str(i), i),
                Cell(row.method),
                *(Cell(dict(row.cells).get(name, "–")) for name in names),
                *(() if names else (Cell(row.reason),)),
            )
            for i, row in enumerate(compared.ranked, start=1)
        ),
        "Ranked by the share that small models retrieved at a multiple of their length. The other "
        "columns are theory: pairs that meet angles unseen in pretraining, distances at which a "
        "random key outscores a similar one, and how much slower the fastest pairs turn.",
    )
    return Section("Ranking of methods", (table,))


def _exported(run: RunOnDisk, exports: Exports, verified: Verified | None) -> Section:
    written = [each.moved(run.path) for each in exports.written]
    folder = next((each.path for each in written if each.target == "transformers"), None)
    section = schedules.loading(written, run.plan, folder)
    more = [Paragraph(f"Left out: {why}", "warning") for why in exports.left_out.values()]
    if verified is not None:
        found = [finding for each in verified.verified for finding in each.findings]
        more += [Paragraph(f"{f.what}: {f.consequence}; {f.remedy}", "warning") for f in found]
    return section._replace(blocks=(*section.blocks, *more))
