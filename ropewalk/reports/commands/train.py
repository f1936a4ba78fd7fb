"""The page of a training: its curves, the plan that it follows, and how to load the model."""

from __future__ import annotations

import shlex
from dataclasses import replace

from ropewalk.blocks import Code, Page, Section
from ropewalk.lengths import format_length
from ropewalk.reports.parts import schedules
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.training.journal import JOURNAL, Step, curves
from ropewalk.training.results import Trained


def page(run: RunOnDisk) -> Page:
    found = run.result(RESULTS, Trained)
    stages = _so_far(run)
    if found is not None:
        found = replace(found, exported=found.exported.moved(run.path))
        stages = [(f"{format_length(s.length)}, {s.method}", s.steps) for s in found.stages]
    sections = [Section("Training", curves(stages))] if stages else []
    if found is not None:
        loading = schedules.loading((found.exported,), found.exported.path)
        sections = [loading, *sections, schedules.of_plans({"plan": found.plan})]
    elif run.plan is not None:
        sections.append(schedules.of_plans({"plan": run.plan}))
    if found is None:
        told = f"Unfinished: {sum(len(own) for _, own in stages):,} steps so far."
        return Page("A training", told, (), tuple(sections), (RESULTS,))
    folder = found.exported.path
    measure = shlex.join(("ropewalk", "evaluate", str(folder)))
    return Page(
        f"{found.model}, trained",
        found.course,
        (),
        tuple(sections),
        facts=schedules.sizes(folder),
        word="trained",
        to_do=Code("measure it, for its loss does not show that facts are found.", measure),
    )


def _so_far(run: RunOnDisk) -> list[tuple[str, tuple[Step, ...]]]:
    """The steps of each stage in the journal."""
    stages = Step.of_lines(run.lines(JOURNAL), str(run.path / JOURNAL))
    return [(f"stage {number}", tuple(own)) for number, own in sorted(stages.items())]
