"""The page of an extension: what the model does now, what it costs, and how to load it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TypeVar

from ropewalk.blocks import Code, Page, Paragraph, Section
from ropewalk.evaluation.tables import gain
from ropewalk.evaluation.verdict import MARGIN
from ropewalk.lengths import format_length
from ropewalk.pipeline.charts import by_documents
from ropewalk.pipeline.results import (
    IN_FOLDER,
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
from ropewalk.records import AS_IT_IS, EXACT_MATCH
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
SUBJECTS = {SEARCHED: "the model under the searched schedule", TRAINED: "the trained model"}
NAMES = {SEARCHED: "the searched schedule", TRAINED: "the trained model"}
MODELS = {"bundled": "The small demonstration model of ropewalk"}
OWN = "For your own model, `ropewalk extend path/to/model --to 128k --dry-run` says what it takes."
_MEANS = " (a schedule: it slows down the rotation by which the model tells positions apart)"
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
    over = told is not None and told.verdict == "works" and limit is not None
    to_do = _to_do(told, run, exports, over=over) if told else None
    window, length = (inspected.serves, inspected.target_length) if inspected else (0, 0)
    sections = [
        *([_exported(run, exports, verified, to_do, window, length)] if exports else ()),
        *(judged_section(each, goes_on=True) for each in going_on),
        *(judged_section(each, is_final=each is told) for each in reversed(judged.values())),
        *([_searched(found, judged)] if found else ()),
    ]
    if trained:
        course = (trained.stage.method, trained.stage.steps)
        sections.append(Section("Training", curves([course])))
    return Page(
        f"{MODELS.get(inspected.model, inspected.model)}, extended from "
        f"{format_length(inspected.serves)} to {format_length(inspected.target_length)} tokens"
        if inspected
        else "A model, extended",
        f"{_finding(told)}\n{_priced(told, found, limit)}" if told else NOT_YET,
        (
            *(f"{each.chosen} is judged now, by {each.so_far}." for each in going_on),
            *(each.summary() for each in (trained, verified) if each is not None),
            *([OWN] if inspected and inspected.model in MODELS else ()),
        ),
        tuple(section for section in sections if section.blocks),
        tuple(
            name
            for name in asked
            if not (run.path / f"{name}.json").exists() and name not in CONDITIONAL
        ),
        facts=schedules.sizes(run.path / "model"),
        word=told.verdict + ", at a price" * over if told else "",
        remarks=tuple(_remarks(told, run)) if told else (),
        to_do=to_do,
        evidence=() if told is None else (told.charts()[0], *told.by_depth()),
    )


def _limit_missed(judged: Judged, run: RunOnDisk) -> float | None:
    """The limit of a run on short text, if the price is above it."""
    limit = run.configuration.get("short_limit")
    if isinstance(limit, float) and limit > 0 and judged.costs_more_than(limit):
        return limit
    return None


def _remarks(judged: Judged, run: RunOnDisk) -> Iterator[tuple[str, str]]:
    """The rule of the verdict, an example, memory and time."""
    if judged.looks:
        last = judged.looks[-1]
        difference = gain(EXACT_MATCH.name, last.difference).text
        yield (
            "How sure",
            f"the share of facts that it retrieves differs by {difference} from that of the "
            f"original at {format_length(judged.window)} ({last.difference.level:.0%} interval). "
            f"It counts as working if the whole interval is above {-100 * MARGIN:.0f}.",
        )
    if judged.example:
        yield "Example", f"{judged.example}."
    if more := schedules.resources(run.path / "model", judged.window, judged.length):
        yield "Memory and time", more


def _priced(judged: Judged, found: SearchResult | None, limit: float | None) -> str:
    """The change within the window, and whether others keep the limit of the run."""
    told = f"On short text, {judged.price_in_words}"
    told += "" if limit is None else f", more than the limit of {math.expm1(limit):.0%}"
    told += ". Perplexity: the lower, the better the model predicts the text."
    if limit is None:
        return told
    costs = dict(found.legs[0].short_costs) if found else {}
    if costs and all(cost.difference.value > limit for cost in costs.values()):
        able = " and ".join(name for name in costs if name != judged.chosen)
        told += f" Of the methods that do as well at {format_length(judged.length)}, none costs "
        told += f"less (also tried: {able})." if able else "less."
    return told


def _finding(judged: Judged) -> str:
    """The figures that a verdict rests on, and its rule."""
    subject = SUBJECTS.get(judged.chosen, f"the model extended by {judged.chosen}{_MEANS}")
    window, length = map(format_length, (judged.window, judged.length))
    if not judged.looks:
        return f"At {length} tokens, {subject} {judged.evidence}."
    own = judged.retrieved(judged.chosen, judged.length)
    told = (
        f"At {length} tokens, {subject} retrieves {own} of the "
        f"{judged.asked(judged.chosen, judged.length)} facts hidden in "
        f"{judged.looks[-1].documents} documents. Unmodified, it retrieves "
        f"{judged.retrieved(AS_IT_IS, judged.length)} of {judged.asked(AS_IT_IS, judged.length)} "
        f"there, and {judged.retrieved(AS_IT_IS, judged.window)} within its own window of {window}."
    )
    doubt = judged.doubt.partition(". ")[0]  # advice follows below
    return f"{told} {doubt[:1].upper()}{doubt[1:]}.".removesuffix(" .")


def _to_do(judged: Judged, run: RunOnDisk, exports: Exports | None, *, over: bool) -> Code:
    """Advice on the exported model, and the command that follows it."""
    if judged.verdict == "works":
        line = schedules.pasted(exports.written[0].moved(run.path)) if exports else ""
        window, length = map(format_length, (judged.window, judged.length))
        short = f"over {window} tokens and up to {length}, and the original for shorter ones"
        told = short if over else f"up to {length} tokens"
        return Code(f"use it for texts of {told}; longer ones were not tested.", line)
    if judged.verdict == "cannot be judged":
        model = exports.written[0].path.name if exports else "model"
        easier = ("ropewalk", "evaluate", str(run.path / model), "--tasks", "passkey,perplexity")
        return Code("ask an easier task.", shlex.join(easier))
    last = judged.looks[-1] if judged.looks else None
    if judged.verdict == "undecided" and last is not None and last.more is not None:
        more = again(run, "--budget", str(last.documents + last.more))
        return Code(f"read {last.more:,} more documents, by this command.", more)
    if exports and exports.of_gguf:
        return Code(f"{IN_FOLDER}, or extend less far{_reach(judged)}.", "")
    advice = f"train under it, or extend less far{_reach(judged)}."
    return Code(advice, again(run, "--train-steps", "200"))


def _reach(judged: Judged) -> str:
    """The longest length in between that lost no more than a schedule that works may."""
    least = judged.shares(AS_IT_IS, judged.window).rate - MARGIN
    between = [length for length in judged.lengths if judged.window < length < judged.length]
    kept = [n for n in between if judged.of(judged.chosen, n)]
    kept = [n for n in kept if judged.shares(judged.chosen, n).rate >= least]
    if not kept:
        return ""
    return (
        f": at {format_length(kept[-1])} it retrieves {judged.retrieved(judged.chosen, kept[-1])}"
    )


def judged_section(judged: Judged, *, is_final: bool = False, goes_on: bool = False) -> Section:
    """The difference after each look; the figures of a verdict that others replaced."""
    name = NAMES.get(judged.chosen, judged.chosen)
    if is_final or goes_on:
        told = (Paragraph(f"{judged.so_far}; {judged.price_in_words}."),) if goes_on else ()
        ends = judged.window, judged.length
        decided = by_documents(judged.looks, judged.chosen, *ends, name)
        shown = (decided, judged.perplexities())
        return Section(f"How {name} was judged", (*told, *shown))
    verdict = f"{_finding(judged)} Verdict: {judged.verdict}; {judged.price_in_words}."
    return Section(
        f"Judged before: {name}", (Paragraph(verdict), judged.charts()[0], judged.perplexities())
    )


def _searched(found: SearchResult, judged: Mapping[str, Judged]) -> Section:
    """The methods that were compared, after the reason if their comparison was not asked for."""
    prices = {each.chosen: each.price for each in judged.values() if each.price}
    section = schedules.of_search(found, prices=prices)
    first, limit = judged.get("first"), found.legs[0].short_limit
    if found.legs[0].history or not (first and limit and first.costs_more_than(limit)):
        return section
    told = Paragraph(
        f"Others were tried, since {first.chosen} raises perplexity within "
        f"{format_length(first.window)} by more than the limit of {math.expm1(limit):.0%}."
    )
    return section._replace(blocks=(told, *section.blocks))


def _exported(
    run: RunOnDisk,
    exports: Exports,
    verified: Verified | None,
    to_do: Code | None,
    window: int,
    length: int,
) -> Section:
    written = [each.moved(run.path) for each in exports.written]
    folder = next((each.path for each in written if each.target == "transformers"), None)
    section = schedules.loading(written, folder, to_do.text if to_do else "", window, length)
    more = [Paragraph(f"Left out: {why}", "warning") for why in exports.left_out.values()]
    if verified is not None:
        found = [finding for each in verified.verified for finding in each.findings]
        more += [Paragraph(f"{f.what}: {f.consequence}; {f.remedy}", "warning") for f in found]
    return section._replace(blocks=(*more, *section.blocks))
