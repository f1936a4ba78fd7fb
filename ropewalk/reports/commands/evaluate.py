"""The page of an evaluation: what each method does at each length, and how far it works."""

from __future__ import annotations

from ropewalk.blocks import Page, Title, sections_of
from ropewalk.chart import TileGrid
from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation import tables
from ropewalk.evaluation.conclusion import evaluated
from ropewalk.evaluation.results import summarise
from ropewalk.reports.parts import measured, schedules
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk


def page(run: RunOnDisk) -> Page:
    found = evaluated(run)
    at = None if found is None else found.original_length
    own = [tables.scores(results := summarise(run.records))] if found is None else found.blocks()
    # All that has depths is drawn below, from the records.
    blocks = (each for each in own if not isinstance(each, Title | TileGrid))
    sections = [
        *sections_of(blocks, "Scores"),
        *([measured.by_task(results, at)] if found is None else ()),
        *([measured.against_short(run.records, at)] if at is not None else ()),
        measured.by_depth(run.records),
        measured.by_position(run.records, at),
        schedules.of_plans(_plans(run)),
    ]
    return Page(
        f"{'A model' if found is None else found.model}, evaluated",
        "Unfinished: what was scored so far is shown." if found is None else found.summary(),
        (),
        tuple(s._replace(command=run.made_by) for s in sections if s.blocks),
        () if found is not None else (RESULTS,),
    )


def _plans(run: RunOnDisk) -> dict[str, ContextPlan]:
    conditions = run.configuration.get("conditions")
    found = {}
    for i, each in enumerate(conditions if isinstance(conditions, list) else []):
        if isinstance(each, dict) and each.get("plan"):
            found[str(each.get("method"))] = ContextPlan.from_json(
                each["plan"], f"{run.path}: conditions[{i}].plan"
            )
    return found
