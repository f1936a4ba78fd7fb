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
    trained = run.result(RESULTS, Trained)
    stages = _so_far(run)
    if trained is not None:
        trained = replace(trained, exported=trained.exported.moved(run.path))
        stages = [(f"{format_length(s.length)}, {s.method}", s.steps) for s in trained.stages]
    sections = [Section("Training", curves(stages))] if stages else []
    if trained is not None:
        loading = schedules.loading((trained.exported,), trained.exported.path)
        sections = [loading, *sections, schedules.of_plans({"plan": trained.plan})]
    elif run.plan is not None:
        sections.append(schedules.of_plans({"plan": run.plan}))
    if trained is None:
        progress = f"Unfinished: {sum(len(steps) for _, steps in stages):,} steps so far."
        return Page("A training", progress, (), tuple(sections), (RESULTS,))
    folder = trained.exported.path
    measure = shlex.join(("ropewalk", "evaluate", str(folder)))
    return Page(
        f"{trained.model}, trained",
        trained.course,
        (),
        tuple(sections),
        facts=schedules.sizes(folder),
        word="trained",
        to_do=Code("measure it, for its loss does not show that facts are found.", measure),
    )


def _so_far(run: RunOnDisk) -> list[tuple[str, tuple[Step, ...]]]:
    """The steps of each stage in the journal."""
    stages = Step.of_lines(run.lines(JOURNAL), str(run.path / JOURNAL))
    return [(f"stage {number}", tuple(steps)) for number, steps in sorted(stages.items())]
