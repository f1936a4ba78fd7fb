"""The page of a search: its result, its cost, and its scores on other documents."""

from __future__ import annotations

import shlex

from ropewalk.blocks import Code, Page
from ropewalk.context_plan import PLAN
from ropewalk.lengths import format_length
from ropewalk.reports.commands import model_of
from ropewalk.reports.parts import schedules
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.searching.model.results import SearchResult


def page(run: RunOnDisk) -> Page:
    result = run.result(RESULTS, SearchResult)
    if result is None:
        return Page("A search", "Unfinished: nothing was found yet.", (), (), (RESULTS,))
    leg = result.legs[-1]
    target, verdict = format_length(leg.length), leg.held_out and leg.held_out.verdict
    said = result.sentences()[:2]
    options = "--method", "none", "--plan", str(run.path / PLAN)
    measure = ("ropewalk", "evaluate", model_of(run), *options)
    return Page(
        f"{result.plan.model}: a search at {target} tokens",
        " ".join(said),
        (),
        (schedules.of_search(result, said),),
        word=f"use {leg.method}" if leg.method else (verdict or "not compared"),
        to_do=Code("measure the plan against the unmodified model.", shlex.join(measure)),
    )
