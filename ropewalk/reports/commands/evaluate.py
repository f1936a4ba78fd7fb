"""The page of an evaluation: what each method does at each length, and how far it works."""

from __future__ import annotations

from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation.conclusion import Evaluated, evaluated
from ropewalk.evaluation.effective_length import EffectiveLength
from ropewalk.evaluation.results import labels, summarise
from ropewalk.reports.page.blocks import Block, Cell, Page, Section, Table
from ropewalk.reports.parts import measured, schedules
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk


def page(run: RunOnDisk) -> Page:
    found = evaluated(run)
    results = summarise(run.records) if found is None else [*found.results, *found.means]
    at = None if found is None else found.original_length
    effective = () if found is None else found.effective_lengths
    sections = [
        *([_effective(effective)] if effective else ()),
        measured.by_task(results, at, effective=effective),
        *([measured.against_short(run.records, at)] if at is not None else ()),
        measured.by_depth(run.records),
        measured.by_position(run.records, at),
        *([_compared(found)] if found is not None and found.comparisons else ()),
        schedules.of_plans(_plans(run)),
    ]
    return Page(
        f"{'A model' if found is None else found.model}, evaluated",
        "Unfinished: what was scored so far is shown." if found is None else found.summary(),
        (),
        tuple(s._replace(command=run.made_by) for s in sections if s.blocks),
        () if found is not None else (RESULTS,),
    )


def _effective(effective: tuple[EffectiveLength, ...]) -> Section:
    names = labels(each.subject for each in effective)
    blocks: list[Block] = [
        Table(
            "How far each method works, by the mean over tasks",
            ("method", "tasks", "mean to reach", "criterion", "works at"),
            tuple(
                (
                    Cell(names[each.subject]),
                    Cell(each.group),
                    Cell(f"{each.threshold:.1%}", each.threshold),
                    Cell(each.criterion),
                    Cell(str(each), each.passed),
                )
                for each in effective
            ),
        )
    ]
    return Section("Effective length", tuple(blocks))


def _compared(found: Evaluated) -> Section:
    table = measured.compared(
        found.comparisons,
        f"At the longest length. {measured.HOW}",
    )
    return Section("Methods compared", (table,))


def _plans(run: RunOnDisk) -> dict[str, ContextPlan]:
    conditions = run.configuration.get("conditions")
    found = {}
    for i, each in enumerate(conditions if isinstance(conditions, list) else []):
        if isinstance(each, dict) and each.get("plan"):
            found[str(each.get("method"))] = ContextPlan.from_json(
                each["plan"], f"{run.path}: conditions[{i}].plan"
            )
    return found
