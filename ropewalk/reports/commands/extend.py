"""The page of an extension: what the model does now, what it costs, and how to load it."""

from __future__ import annotations

import math
import shlex
from functools import partial
from typing import TypeVar

from ropewalk.blocks import Code, Page, Paragraph, Section
from ropewalk.evaluation.verdict import MARGIN
from ropewalk.lengths import format_length
from ropewalk.pipeline.charts import by_documents
from ropewalk.pipeline.results import (
    SO_FAR,
    TRAINED,
    Exports,
    Inspected,
    Judged,
    TrainingResult,
    Verified,
    check_version,
    final,
    read_result,
    run_id,
)
from ropewalk.reports.commands import again
from ropewalk.reports.parts import schedules
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.searching.model.results import SEARCHED, SearchResult
from ropewalk.training.journal import curves
from ropewalk.values import Result

R = TypeVar("R", bound=Result)
JUDGES = ("first", "verdict", "trained")
CONDITIONAL = ("search", "verdict")
"""The stages that what others found may make needless."""
NAMES = {SEARCHED: "the searched schedule", TRAINED: "the trained model"}
NOT_YET = "Not judged yet, so how well the extended model works is unknown."


def stage_of(run: RunOnDisk, name: str, kind: type[R], ending: str = ".json") -> R | None:
    """The result of a stage; None if there is none yet."""
    file = run.path / f"{name}{ending}"
    return read_result(file, name, kind, run_id(run.configuration)) if file.exists() else None


def page(run: RunOnDisk) -> Page:
    check_version(run.configuration, run.path)
    stage = partial(stage_of, run)
    inspected = stage("inspect", Inspected)
    found, trained = stage("search", SearchResult), stage("train", TrainingResult)
    exports, verified = stage("export", Exports), stage("verify", Verified)
    judged = {name: own for name in JUDGES if (own := stage(name, Judged)) is not None}
    told = final(judged) if judged else None
    going_on = [own for name in JUDGES if (own := stage(name, Judged, SO_FAR)) is not None]
    names = run.configuration.get("stages")
    asked = [str(name) for name in names] if isinstance(names, list) else []
    limit = _limit_missed(told, run) if told else None
    to_do = _to_do(told, run, exports, over=limit is not None) if told else None
    sections = [
        *([_exported(run, exports, verified, to_do)] if exports else ()),
        *(judged_section(each, goes_on=True) for each in going_on),
        *(judged_section(each, is_final=each is told) for each in reversed(judged.values())),
        *([_searched(found, judged.get("first"))] if found else ()),
    ]
    if trained:
        course = (trained.stage.method, trained.stage.steps)
        sections.append(Section("Training", curves([course])))
    return Page(
        f"{inspected.model}, extended from {format_length(inspected.serves)} to "
        f"{format_length(inspected.target_length)} tokens"
        if inspected
        else "A model, extended",
        _finding(told) if told else NOT_YET,
        (
            *(f"Example: {each.example}." for each in judged.values() if each.example),
            *(f"{each.chosen} is judged now, by {each.so_far}." for each in going_on),
            *(each.summary() for each in (trained, verified) if each is not None),
        ),
        tuple(section for section in sections if section.blocks),
        tuple(
            name
            for name in asked
            if not (run.path / f"{name}.json").exists() and name not in CONDITIONAL
        ),
        facts=schedules.sizes(run.path / "model"),
        word="" if told is None else told.verdict,
        price=_price(told, found, limit) if told else "",
        to_do=to_do,
        evidence=() if told is None else tuple(told.charts()),
    )


def _limit_missed(judged: Judged, run: RunOnDisk) -> float | None:
    """The limit of a run on short text, if the price is above it."""
    limit = run.configuration.get("short_limit")
    if isinstance(limit, float) and limit > 0 and judged.costs_more_than(limit):
        return limit
    return None


def _price(judged: Judged, found: SearchResult | None, limit: float | None) -> str:
    """The change within the window; and if it is above a limit, whether others keep that."""
    told = judged.price_in_words
    if limit is None:
        return f"{told}."
    told += f", above the limit of {math.expm1(limit):.0%}"
    costs = found.legs[0].short_costs if found else {}
    if costs and all(cost.difference.value > limit for cost in costs.values()):
        able = " and ".join(costs)
        told += f", as are all that may be best at {format_length(judged.length)}: {able}"
    return f"{told}."


def _finding(judged: Judged) -> str:
    """The figure that a verdict rests on, and its rule."""
    name = NAMES.get(judged.chosen, judged.chosen)
    level = f"{judged.looks[-1].difference.level:.0%}" if judged.looks else "wider"
    rule = (
        f"It works if this {level} interval, wide enough for every look at the documents, is above "
        f"{-100 * MARGIN:.0f} points as a whole."
    )
    return f"At {format_length(judged.length)} tokens, {name} {judged.evidence}. {rule}"


def _to_do(judged: Judged, run: RunOnDisk, exports: Exports | None, *, over: bool) -> Code:
    """Advice on the exported model, and the command that follows it."""
    if judged.verdict == "works":
        load = exports.written[0].moved(run.path).load if exports else ""
        window = format_length(judged.window)
        short = f" for long text, and the unmodified model within {window}" if over else ""
        return Code(f"use it{short}.", schedules.pasted(load))
    if judged.verdict == "cannot be judged":
        easier = ("ropewalk", "evaluate", str(run.path / "model"), "--tasks", "passkey,perplexity")
        return Code("ask an easier task.", shlex.join(easier))
    last = judged.looks[-1] if judged.looks else None
    if judged.verdict == "undecided" and last is not None and last.more is not None:
        more = again(run, "--budget", str(last.documents + last.more))
        return Code("read more documents.", more)
    return Code("train under it, or extend less far.", again(run, "--train-steps", "200"))


def judged_section(judged: Judged, *, is_final: bool = False, goes_on: bool = False) -> Section:
    """The difference after each look; the figures of a verdict that others replaced."""
    name = NAMES.get(judged.chosen, judged.chosen)
    if is_final or goes_on:
        told = (Paragraph(f"{judged.so_far}; {judged.price_in_words}."),) if goes_on else ()
        return Section(f"How {name} was judged", (*told, by_documents(judged.looks, name)))
    verdict = f"{_finding(judged)} Verdict: {judged.verdict}; {judged.price_in_words}."
    return Section(f"Judged before: {name}", (Paragraph(verdict), *judged.charts()))


def _searched(found: SearchResult, first: Judged | None) -> Section:
    """The methods that were compared, after the reason if their comparison was not asked for."""
    section, limit = schedules.of_search(found), found.legs[0].short_limit
    if found.legs[0].history or not (first and limit and first.costs_more_than(limit)):
        return section
    told = Paragraph(
        f"Others were tried, since {first.chosen} raises perplexity within "
        f"{format_length(first.window)} by more than the limit of {math.expm1(limit):.0%}."
    )
    return section._replace(blocks=(told, *section.blocks))


def _exported(
    run: RunOnDisk, exports: Exports, verified: Verified | None, to_do: Code | None
) -> Section:
    written = [each.moved(run.path) for each in exports.written]
    folder = next((each.path for each in written if each.target == "transformers"), None)
    section = schedules.loading(written, folder, to_do.text if to_do else "")
    more = [Paragraph(f"Left out: {why}", "warning") for why in exports.left_out.values()]
    if verified is not None:
        found = [finding for each in verified.verified for finding in each.findings]
        more += [Paragraph(f"{f.what}: {f.consequence}; {f.remedy}", "warning") for f in found]
    return section._replace(blocks=(*section.blocks, *more))
