"""The page of an evaluation: what each method does at each length, and how far it works."""

from __future__ import annotations

from functools import partial
from itertools import chain

from ropewalk.blocks import Code, Heading, Page, Section, Title, sections_of
from ropewalk.chart import TileGrid
from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation import charts, tables
from ropewalk.evaluation.conclusion import CURVES, Evaluated, evaluated
from ropewalk.evaluation.effective_length import EffectiveLength
from ropewalk.evaluation.results import labels, summarise
from ropewalk.evaluation.tradeoff import tradeoffs
from ropewalk.lengths import format_length
from ropewalk.reports.commands import again
from ropewalk.reports.parts import schedules
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk


def page(run: RunOnDisk) -> Page:
    evaluation = evaluated(run)
    results = summarise(run.records)
    at = None if evaluation is None else evaluation.original_length
    parts = [] if evaluation is None else evaluation.blocks()
    if evaluation is None and results:
        parts = [tables.scores(results), Heading(CURVES), *charts.by_length(results)]
    # All that has depths is drawn below, from the records.
    blocks = (each for each in parts if not isinstance(each, Title | TileGrid))
    sections = [
        *sections_of(blocks, "Scores"),
        Section(
            "Long context against short text",
            () if at is None else tuple(tradeoffs(run.records, at)),
        ),
        Section(
            "Where answers are found",
            tuple(chain.from_iterable(charts.by_depth(run.records).values())),
        ),
        Section("Perplexity by position", tuple(charts.by_position(run.records, at))),
        schedules.of_plans(_plans(run)),
    ]
    shown = tuple(section for section in sections if section.blocks)
    if evaluation is None:
        text = "Unfinished: what was scored so far is shown."
        return Page("A model, evaluated", text, (), shown, (RESULTS,))
    name, word, to_do = _verdict(evaluation, run)
    needed = {each.threshold for each in evaluation.effective_lengths}
    rule = (
        f" It works if the whole interval reaches {needed.pop():.0%}." if len(needed) == 1 else ""
    )
    standings = evaluation.standings
    at_longest = f"{name} at {format_length(evaluation.longest)}: {standings.pop(name)}.{rule}"
    others = [f"{other}: {standing}" for other, standing in standings.items()]
    return Page(
        f"{evaluation.model}, evaluated",
        at_longest,
        (*others, *evaluation.remarks()),
        shown,
        word=word,
        to_do=to_do,
    )


def _verdict(evaluation: Evaluated, run: RunOnDisk) -> tuple[str, str, Code | None]:
    """The subject that reaches farthest, the word for it, and advice with its command."""
    if not evaluation.effective_lengths:
        return next(iter(evaluation.standings)), "", None
    named = labels(result.subject for result in evaluation.results)
    first, *others = evaluation.effective_lengths
    alike = (e for e in others if (e.group, e.criterion) == (first.group, first.criterion))
    longest = first.standings[-1].length
    best = max((first, *alike), key=partial(_reach, longest))
    name = named[best.subject]
    if best.passed == longest:
        return name, "works", Code(f"use {name} up to {format_length(longest)}.", "")
    if best.possible != longest:
        reach = "" if best.passed is None else f"use it up to {format_length(best.passed)}, or "
        return name, "does not work", Code(f"{reach}train under {name}.", "")
    most = max(result.samples for result in evaluation.results)
    command = again(run, "--samples", str(4 * most))
    return name, "undecided", Code("score more samples.", command)


def _reach(longest: int, length: EffectiveLength) -> tuple[bool, bool, int, float]:
    """In order of rank: it works, it may work, up to where it does, and how well at the end."""
    margin = length.standings[-1].margin.value
    return length.passed == longest, length.possible == longest, length.passed or 0, margin


def _plans(run: RunOnDisk) -> dict[str, ContextPlan]:
    conditions = run.configuration.get("conditions")
    plans = {}
    for i, each in enumerate(conditions if isinstance(conditions, list) else []):
        if isinstance(each, dict) and each.get("plan"):
            plans[str(each.get("method"))] = ContextPlan.from_json(
                each["plan"], f"{run.path}: conditions[{i}].plan"
            )
    return plans
