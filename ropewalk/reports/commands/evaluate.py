"""The page of an evaluation: what each method does at each length, and how far it works."""

from __future__ import annotations

from itertools import chain

from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation.conclusion import Evaluated, evaluated
from ropewalk.evaluation.effective_length import EffectiveLength
from ropewalk.evaluation.results import labels, summarise
from ropewalk.lengths import format_length
from ropewalk.reports import evaluation
from ropewalk.reports.commands import again
from ropewalk.reports.page.blocks import Cell, Page, Section, Table
from ropewalk.reports.parts import measured, schedules
from ropewalk.reports.tradeoff import tradeoffs
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk


def page(run: RunOnDisk) -> Page:
    found = evaluated(run)
    results = summarise(run.records) if found is None else [*found.results, *found.means]
    at = None if found is None else found.original_length
    effective = () if found is None else found.effective_lengths
    sections = [
        Section("Effective length", (_effective(effective),) if effective else ()),
        Section(
            "Each task by context length",
            tuple(evaluation.by_length(results, at, effective=effective)),
        ),
        Section(
            "Long context against short text",
            () if at is None else tuple(tradeoffs(run.records, at)),
        ),
        Section(
            "Where answers are found",
            tuple(chain.from_iterable(evaluation.by_depth(run.records).values())),
        ),
        Section("Perplexity by position", tuple(evaluation.by_position(run.records, at))),
        Section(
            "Methods compared",
            (measured.compared(found.comparisons, f"At the longest length. {measured.HOW}"),)
            if found is not None and found.comparisons
            else (),
        ),
        schedules.of_plans(_plans(run)),
    ]
    shown = tuple(section for section in sections if section.blocks)
    if found is None:
        told = "Unfinished: what was scored so far is shown."
        return Page("A model, evaluated", told, (), shown, (RESULTS,))
    name, word, advice, command = _verdict(found, run)
    standings = found.standings
    at_longest = f"{name} at {format_length(found.longest)}: {standings.pop(name)}."
    others = [f"{other}: {standing}" for other, standing in standings.items()]
    return Page(
        f"{found.model}, evaluated",
        at_longest,
        (*others, *found.remarks()),
        shown,
        word=word,
        advice=advice,
        command=command,
    )


def _verdict(found: Evaluated, run: RunOnDisk) -> tuple[str, str, str, str]:
    """The subject that reaches farthest, the word for it, and advice with its command."""
    if not found.effective_lengths:
        return next(iter(found.standings)), "", "", ""
    named = labels(result.subject for result in found.results)
    first, *others = found.effective_lengths
    alike = (e for e in others if (e.group, e.criterion) == (first.group, first.criterion))
    best = max((first, *alike), key=lambda e: (e.passed or 0, e.standings[-1].margin))
    name, longest = named[best.subject], best.standings[-1].length
    if best.passed == longest:
        return name, "works", f"use {name} up to {format_length(longest)}.", ""
    if best.possible != longest:
        reach = "" if best.passed is None else f"use it up to {format_length(best.passed)}, or "
        return name, "does not work", f"{reach}train under {name}.", ""
    most = max(result.samples for result in found.results)
    command = again(run, "--samples", str(4 * most))
    return name, "undecided", "score more samples.", command


def _effective(effective: tuple[EffectiveLength, ...]) -> Table:
    names = labels(each.subject for each in effective)
    return Table(
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


def _plans(run: RunOnDisk) -> dict[str, ContextPlan]:
    conditions = run.configuration.get("conditions")
    found = {}
    for i, each in enumerate(conditions if isinstance(conditions, list) else []):
        if isinstance(each, dict) and each.get("plan"):
            found[str(each.get("method"))] = ContextPlan.from_json(
                each["plan"], f"{run.path}: conditions[{i}].plan"
            )
    return found
