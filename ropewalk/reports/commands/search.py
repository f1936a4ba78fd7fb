"""The page of a search: its result, its cost, and its scores on other documents."""

from __future__ import annotations

from ropewalk.blocks import Page
from ropewalk.lengths import format_length
from ropewalk.reports.parts import schedules
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.searching.model.results import Found


def page(run: RunOnDisk) -> Page:
    found = run.result(RESULTS, Found)
    if found is None:
        return Page("A search", "Unfinished: nothing was found yet.", (), (), (RESULTS,))
    target = format_length(found.legs[0].length)
    section = schedules.of_search(found)._replace(command=run.made_by)
    return Page(
        f"{found.plan.model}: a search at {target} tokens",
        found.summary(),
        (),
        (section, schedules.of_plans({"plan": found.plan})),
    )
