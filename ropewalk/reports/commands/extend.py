"""The page of an extension: what the model does now, what it costs, and how to load it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TypeVar

from ropewalk.blocks import Code, Details, KeyFigure, Page, Paragraph, Section, Table, cells
from ropewalk.chart import Chart
from ropewalk.evaluation.planted import text_of
from ropewalk.evaluation.results import shown_method
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.evaluation.tables import gain
from ropewalk.evaluation.verdict import MARGIN, TO_WORK
from ropewalk.lengths import format_length
from ropewalk.pipeline.charts import by_documents, extended
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
from ropewalk.pipeline.settings import SHIPPED_UP_TO
from ropewalk.records import AS_IT_IS, EXACT_MATCH
from ropewalk.reports.commands import again, argument
from ropewalk.reports.parts import schedules
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.searching.model.results import SearchResult
from ropewalk.training.journal import curves
from ropewalk.values import Result

R = TypeVar("R", bound=Result)
JUDGES = ("first", "verdict", "trained")
CONDITIONAL = ("search", "verdict")
"""The stages that what others found may make needless."""
MODELS = {"bundled": "The small demonstration model of ropewalk"}
OWN = "For your own model, `ropewalk extend path/to/model --to 128k --dry-run` says what it takes."
SHOWN = 4
"""The texts of a corpus that a page names."""
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
    original = inspected.model if inspected else ""
    to_do = _to_do(told, run, exports, over=over, original=original) if told else None
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
        f"{_ruled(told)}\n{_priced(told, limit)}" if told else NOT_YET,
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
        facts=(*schedules.sizes(run.path / "model"), *_untrained(told)),
        word=told.verdict + ", at a price" * over if told else "",
        remarks=tuple(_remarks(told, run, over=over)) if told else (),
        to_do=to_do,
        evidence=() if told is None else (told.charts()[0], *told.by_depth(), *_example(told)),
        figures=tuple(_figures(told, _limit(run))) if told else (),
    )


def _untrained(judged: Judged | None) -> Iterator[str]:
    """The part of the model that was changed, where no weight was touched."""
    if judged is not None and judged.chosen not in (AS_IT_IS, TRAINED):
        yield f"not trained: its rotary embedding follows {judged.chosen}, its weights are the same"


def _limit_missed(judged: Judged, run: RunOnDisk) -> float | None:
    """The limit of a run on short text, if the price is above it."""
    limit = _limit(run)
    return limit if limit and judged.costs_more_than(limit) else None


def _limit(run: RunOnDisk) -> float:
    """The limit on short text; 0 for none."""
    limit = run.configuration.get("short_limit")
    return max(0.0, limit) if isinstance(limit, float) else 0.0


def _figures(judged: Judged, limit: float) -> Iterator[KeyFigure]:
    """Facts retrieved at the target and within the window, and the price, before and after."""
    if not judged.looks:
        return
    window, length = judged.window, judged.length
    both = (AS_IT_IS, judged.chosen)
    at, within = ([judged.shares(method, n) for method in both] for n in (length, window))
    own, asked = at[1].estimate(), [judged.asked(method, length) for method in both]
    label, ends = f"of {asked[1]} facts retrieved at {format_length(length)}", own.range()
    if at[0].shares:
        before = at[0].estimate()
        label += f"; unmodified {before.number()} of {asked[0]}"
        ends += f"; unmodified {before.range()}"
    yield KeyFigure(own.number(), label, ends)
    if all(each.shares for each in within):
        rates = [each.estimate() for each in within]
        yield KeyFigure(
            " → ".join(each.number() for each in rates),
            f"of the facts at {format_length(window)}, unmodified → {extended(judged.chosen)}",
            " → ".join(each.range() for each in rates),
        )
    if judged.price is not None:
        price = judged.price.change
        told = f"perplexity at {format_length(window)}, on the same texts"
        told += f"; limit {math.expm1(limit):+.0%}" if limit else ""
        yield KeyFigure(price.number(), told, price.range())


def _example(judged: Judged) -> Iterator[Table]:
    """One fact of the first document, with both answers."""
    if (own := judged.example) is not None:
        rows = (
            (f"hidden {own.depth:.0%} into it", f"`{own.question}`, followed by `{own.answer}`"),
            ("prompt at its end", f"`{own.question}`"),
            (f"answer, {shown_method(AS_IT_IS)}", f"`{own.before}`"),
            (f"answer, {extended(judged.chosen)}", f"`{own.after}`"),
        )
        length = format_length(judged.length)
        title = f"One fact, from the first document of {length} tokens"
        yield Table(title, ("", "as the model reads and writes it"), tuple(cells(*r) for r in rows))


def _remarks(judged: Judged, run: RunOnDisk, *, over: bool) -> Iterator[tuple[str, str]]:
    """The text and its facts, what might lower the price, memory and time."""
    own = judged.of(judged.chosen, judged.length)
    if own:
        corpus = argument(run, "corpus")
        corpus = corpus or ("held-out" if judged.length <= SHIPPED_UP_TO else "python")
        texts = sorted({text_of(each.source) for each in own})
        more = ", …" if len(texts) > SHOWN else ""
        yield (
            "The text",
            f"{len(own)} documents of {format_length(judged.length)} tokens, cut from "
            f"the corpus `{corpus}`: {len(texts)} texts ({', '.join(texts[:SHOWN])}"
            f"{more}). None of these documents chose the method.",
        )
        yield (
            "The facts",
            f"each document hides {own[0].facts}, at the depths shown above, and asks for all at "
            "its end. An answer counts if it is exactly the hidden one.",
        )
    if over and judged.chosen != TRAINED:
        more = again(run, "--train-steps", "200")
        yield "To lower the price", f"training under this schedule may; not tried here: `{more}`"
    if more := schedules.resources(run.path / "model", judged.window, judged.length):
        yield "Memory and time", more


def _priced(judged: Judged, limit: float | None) -> str:
    """The change within the window, and the limit of the run if it misses that."""
    told = f"On short text, {judged.price_in_words}"
    if limit is not None:
        default = "the default of" if limit == SHORT_LIMIT else "set by"
        told += f", more than the limit of {math.expm1(limit):.0%} ({default} `--short-limit`)"
    told += ". Perplexity: the lower, the better the model predicts the text."
    if limit is not None and not judged.loses_facts:
        told += " Only perplexity is worse there: no loss of facts is shown."
    return told


def _ruled(judged: Judged) -> str:
    """The difference that decides, with its rule; the figures stand before it."""
    if not judged.looks:
        return _finding(judged)
    last, name = judged.looks[-1], extended(judged.chosen)
    difference = gain(EXACT_MATCH.name, last.difference).text
    window, length = map(format_length, (judged.window, judged.length))
    told = (
        f"At {length}, the share of facts that {name} retrieves differs by {difference} from that "
        f"of the unmodified model at {window} "
        f"({last.difference.level:.0%} interval). The rule: it works if the whole "
        f"interval is above {-100 * MARGIN:.0f}, after {TO_WORK} documents or more."
    )
    return f"{told}{_doubt(judged)}"


def _finding(judged: Judged) -> str:
    """The figures that a verdict rests on, and its rule."""
    subject = extended(judged.chosen)
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
    return f"{told}{_doubt(judged)}"


def _doubt(judged: Judged) -> str:
    """The sentence that would settle an open verdict, without its advice, which stands below."""
    doubt = judged.doubt.partition(". ")[0]
    return f" {doubt[:1].upper()}{doubt[1:]}." if doubt else ""


def _to_do(
    judged: Judged, run: RunOnDisk, exports: Exports | None, *, over: bool, original: str = ""
) -> Code:
    """Advice on the exported model, and the command that follows it."""
    if judged.verdict == "works":
        line = schedules.pasted(exports.written[0].moved(run.path)) if exports else ""
        window, length = map(format_length, (judged.window, judged.length))
        named = f" (`{original}`)" if original else ""
        short = f"over {window} tokens and up to {length}, and the original{named} for shorter ones"
        told = short if over else f"up to {length} tokens"
        checked = f"judged at {length}{_between(judged)}; longer ones were not tested"
        return Code(f"use it for texts of {told}. It was {checked}.", line)
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


def _between(judged: Judged) -> str:
    """The lengths in between, for which few facts were asked."""
    told = [
        f"{format_length(n)} ({judged.retrieved(judged.chosen, n)} of {count} facts)"
        for n in judged.lengths
        if judged.window < n < judged.length and (count := judged.asked(judged.chosen, n))
    ]
    return f", and only spot-checked at {' and '.join(told)}" if told else ""


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
    name = extended(judged.chosen)
    if is_final or goes_on:
        told = (Paragraph(f"{judged.so_far}; {judged.price_in_words}."),) if goes_on else ()
        ends = judged.window, judged.length
        decided = by_documents(judged.looks, judged.chosen, *ends)
        shown = (decided, judged.perplexities())
        return Section(f"How {name} was judged", (*told, *shown))
    verdict = f"{_finding(judged)} Verdict: {judged.verdict}; {judged.price_in_words}."
    return Section(
        f"Judged before: {name}", (Paragraph(verdict), judged.charts()[0], judged.perplexities())
    )


def _searched(found: SearchResult, judged: Mapping[str, Judged]) -> Section:
    """The methods that were compared, after the reason if their comparison was not asked for."""
    section = schedules.of_search(found)
    *shown, last = section.blocks
    if isinstance(last, Chart):  # of factors, which few people need
        section = section._replace(blocks=(*shown, Details((last,), last.title)))
    first, limit = judged.get("first"), found.legs[0].short_limit
    if found.legs[0].history or not (first and limit and first.costs_more_than(limit)):
        return section
    told = Paragraph(
        f"Others were tried, since {first.chosen} raises perplexity within "
        f"{format_length(first.window)} by more than the limit of {math.expm1(limit):.0%}."
        f"{_others(found)}{_judged_price(found, first)}"
    )
    return section._replace(blocks=(told, *section.blocks))


def _judged_price(found: SearchResult, first: Judged) -> str:
    """The price of the chosen method on documents that did not choose it, if it was judged."""
    if first.price is None or found.legs[0].chosen != first.chosen:
        return ""
    price, count = first.price.change, first.price.documents
    return f" On the {count} documents that judge it, that of {first.chosen} is {price}."


def _others(found: SearchResult) -> str:
    """The prices of methods that were not shown to be worse than the chosen one."""
    leg, told = found.legs[0], ""
    costs = {name: cost.change for name, cost in leg.short_costs.items()}
    if (own := costs.pop(leg.chosen, None)) is None:
        return ""
    for name, price in costs.items():
        apart = own.high is not None and price.is_above(own.high)
        told += (
            f" {name} is not shown to be worse at {format_length(leg.length)}; on the "
            f"{leg.short_costs[name].documents} documents that chose, its price is {price}, that "
            f"of {leg.chosen} {own}{'' if apart else ': the intervals overlap'}."
        )
    return told


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
