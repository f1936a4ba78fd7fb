"""The page of an extension: what the model does now, what it costs, and how to load it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ropewalk.blocks import Code, Details, KeyFigure, Page, Paragraph, Section, Table, cells
from ropewalk.chart import Chart
from ropewalk.evaluation.planted import text_of
from ropewalk.evaluation.results import shown_method
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.evaluation.tables import gain
from ropewalk.evaluation.verdict import MARGIN, TO_WORK
from ropewalk.exporting.exported import Exported
from ropewalk.interval import Interval
from ropewalk.lengths import format_length
from ropewalk.models.config import BUNDLED, BUNDLED_FOLDERS
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
MODELS = {BUNDLED: "The small demonstration model of ropewalk"}
PATHS = {name: f"ropewalk/models/{folder.name}" for name, folder in BUNDLED_FOLDERS.items()}
"""Where they are among the installed packages."""
OWN = "For your own model, `ropewalk extend path/to/model --to 128k --dry-run` says what it takes."
PART = re.compile(r" from (\d+)$")
"""The end of the name of a text whose beginning others may see."""
SHOWN = 4
"""The texts of a corpus that a page names."""
TRAIN = "--train-steps", "200"
CHEAPER, MAY = "To lower the price", "training under this schedule may; not tried here:"
SAME = "not trained: its rotary embedding follows {}, its weights are the same"
NOT_YET = "Not judged yet, so how well the extended model works is unknown."


def stage_of(run: RunOnDisk, name: str, kind: type[R], ending: str = ".json") -> R | None:
    """The result of a stage; None if there is none yet."""
    file = run.path / f"{name}{ending}"
    return read_result(file, name, kind, run_id(run.configuration)) if file.exists() else None


def page(run: RunOnDisk) -> Page:
    stage = partial(stage_of, run)
    inspected = stage("inspect", Inspected)
    searched, trained = stage("search", SearchResult), stage("train", TrainingResult)
    exports, verified = stage("export", Exports), stage("verify", Verified)
    judged = {name: result for name in JUDGES if (result := stage(name, Judged)) is not None}
    # Without a verdict that the run had, nothing shows which of the others would count.
    is_whole = not any(f"{name}.json" in run.sealed and name not in judged for name in JUDGES)
    valid = final(judged) if judged and is_whole else None
    going_on = [result for name in JUDGES if (result := stage(name, Judged, SO_FAR)) is not None]
    # The verdict that counts, and whether short text costs more than the run allows.
    limit = _limit(run)
    missed = valid is not None and limit > 0 and valid.costs_more_than(limit)
    over = valid is not None and valid.verdict == "works" and missed
    same = [SAME.format(valid.chosen)] if valid and valid.chosen not in (AS_IT_IS, TRAINED) else []
    # The lines to paste name the exports where the run lies now; it may have been moved.
    written = [each.moved(run.path) for each in exports.written] if exports else []
    line = schedules.pasted(written[0]) if written else ""
    original = f", `{PATHS.get(inspected.model, inspected.model)}`," if inspected else ""
    to_do = _to_do(valid, run, exports, over=over, line=line, original=original) if valid else None
    is_line = line and to_do and to_do.text == line
    window, length = (inspected.serves, inspected.target_length) if inspected else (0, 0)
    # Judgements stand newest first, after one that still goes on.
    sections = [
        *([_exported(exports, written, verified, to_do, window, length)] if exports else ()),
        *(judged_section(each, goes_on=True) for each in going_on),
        *(judged_section(each, is_final=each is valid) for each in reversed(judged.values())),
        *(_tested(valid, run) if valid else ()),
        *([_searched(searched, judged)] if searched else ()),
    ]
    if trained:
        course = (trained.stage.method, trained.stage.steps)
        sections.append(Section("Training", curves([course])))
    return Page(
        f"{MODELS.get(inspected.model, inspected.model)}, extended from "
        f"{format_length(inspected.serves)} to {format_length(inspected.target_length)} tokens"
        if inspected
        else "A model, extended",
        f"{_ruled(valid)}\n{_priced(valid, limit if missed else 0.0)}" if valid else NOT_YET,
        (
            *(f"{each.chosen} is judged now, by {each.so_far}." for each in going_on),
            *([trained.summary()] if trained else ()),
            *([OWN] if inspected and inspected.model in MODELS else ()),
        ),
        tuple(section for section in sections if section.blocks),
        _missing(run),
        facts=(*schedules.sizes(run.path / "model"), *same),
        word=valid.verdict + ", at a price" * over if valid else "",
        remarks=((CHEAPER, f"{MAY} `{again(run, *TRAIN)}`"),) if over and not trained else (),
        to_do=to_do,
        evidence=(
            *(valid.charts()[:1] if valid else ()),
            *(schedules.settings(written[0].path) if is_line else ()),
        ),
        figures=tuple(_figures(valid, limit)) if valid else (),
    )


def _missing(run: RunOnDisk) -> tuple[str, ...]:
    """The stages without a result, of which a conditional one only counts if it had one."""
    names = run.configuration.get("stages")
    return tuple(
        name
        for name in map(str, names if isinstance(names, list) else ())
        if not (run.path / (file := f"{name}.json")).exists()
        and (name not in CONDITIONAL or file in run.sealed)
    )


def _limit(run: RunOnDisk) -> float:
    """The limit on short text; 0 for none."""
    limit = run.configuration.get("short_limit")
    return max(0.0, limit) if isinstance(limit, float) else 0.0


def _figures(judged: Judged, limit: float) -> Iterator[KeyFigure]:
    """Facts retrieved at the target and within the window, and the price, before and after."""
    if not judged.looks:
        return
    for length in (judged.length, judged.window):
        rates = [
            (method, judged.shares(method, length).estimate())
            for method in (AS_IT_IS, judged.chosen)
            if judged.of(method, length)
        ]
        counts = dict.fromkeys(judged.asked(method, length) for method, _ in rates)
        label = f"facts retrieved at {format_length(length)}"
        if len(rates) > 1 and length == judged.length:
            label += ", unmodified → extended"
        yield KeyFigure(
            " → ".join(rate.number() for _, rate in rates),
            label,
            f"of {' and '.join(map(str, counts))}; {_ends(*(rate for _, rate in rates))}",
        )
    if judged.price is not None:
        price = judged.price.change
        label = f"perplexity at {format_length(judged.window)}"
        label += f"; limit {math.expm1(limit):+.0%}" if limit else ""
        read = f"{judged.price.documents} documents"
        yield KeyFigure(price.number(), label, f"{read}; {_ends(price)}")


def _ends(*intervals: Interval) -> str:
    ranges = ", ".join(each.range().strip("()") for each in intervals)
    return f"95% interval{'s' * (len(intervals) > 1)} {ranges}"


def _tested(judged: Judged, run: RunOnDisk) -> list[Section]:
    """Facts by depth; the text, and one of its facts with both answers; memory and time."""
    readings, length = judged.of(judged.chosen, judged.length), format_length(judged.length)
    rows = []
    if readings:
        corpus = argument(run, "corpus")
        corpus = corpus or ("held-out" if judged.length <= SHIPPED_UP_TO else "python")
        texts = sorted({PART.sub(_from, text_of(each.source)) for each in readings})
        more = "; …" if len(texts) > SHOWN else ""
        rows = [
            (
                "text",
                f"{len(readings)} documents of {length} tokens, cut from {len(texts)} texts of the "
                f"corpus `{corpus}` ({'; '.join(texts[:SHOWN])}{more}). None of them chose the "
                "method.",
            ),
            (
                "facts",
                f"{readings[0].facts} hidden in each document, and all asked for at its end. An "
                "answer counts if it is exactly the hidden one.",
            ),
        ]
    # One hidden fact, so that a reader sees what was asked and how both models answered.
    if (one := judged.example) is not None:
        rows += [
            (f"a hidden line, {one.depth:.0%} into its text", f"`{one.lines or one.question}`"),
            ("its prompt, at the end", f"`{one.question}`"),
            (f"answer, {shown_method(AS_IT_IS)}", f"`{one.before}`"),
            (f"answer, {extended(judged.chosen)}", f"`{one.after}`"),
        ]
    if more := schedules.resources(run.path / "model", judged.window, judged.length):
        rows.append(("memory and time", more))
    table = Table("", ("part", "in this run"), tuple(cells(*row) for row in rows))
    return [
        Section("Where facts are found", tuple(judged.by_depth())),
        Section("What was tested", (table,) if rows else ()),
    ]


def _from(cut: re.Match[str]) -> str:
    return f", from character {int(cut[1]):,}"


def _priced(judged: Judged, limit: float) -> str:
    """The change within the window, and the limit of the run if it misses that."""
    text = judged.text_in_words
    if limit:  # both figures stand before the sentence
        default = "the default of" if limit == SHORT_LIMIT else "set by"
        text = f"perplexity rises by more than the limit ({default} `--short-limit`)"
    if judged.kept is not None:
        change = judged.kept.difference
        same = change.low == change.high == 0
        kept = "do not change" if same else f"change by {gain(EXACT_MATCH.name, change).text}"
        kept += "" if same else f" ({change.level:.0%} interval)"
        text += f"; facts retrieved there {kept}"
    return f"On short text, {text}. Lower perplexity is better."


def _ruled(judged: Judged) -> str:
    """The difference that decides, with its rule; the figures stand before it."""
    window, length = map(format_length, (judged.window, judged.length))
    if not judged.looks:
        return f"At {length} tokens, {extended(judged.chosen)} {judged.evidence}."
    last = judged.looks[-1]
    difference = gain(EXACT_MATCH.name, last.difference).text
    doubt = judged.doubt.partition(". ")[0]  # the advice stands below
    rule = (
        "Facts are short keys and numbers hidden in text; no reasoning and no long answer was "
        f"tested. Facts retrieved at {length}, minus those of the unmodified model at {window}: "
        f"{difference} ({last.difference.level:.0%} interval). It works if the whole interval is "
        f"above {-100 * MARGIN:.0f}, ropewalk's fixed limit, after {TO_WORK} documents or more."
    )
    return f"{rule} {doubt[:1].upper()}{doubt[1:]}{'.' * bool(doubt)}".rstrip()


def _to_do(
    judged: Judged,
    run: RunOnDisk,
    exports: Exports | None,
    *,
    over: bool,
    line: str = "",
    original: str = "",
) -> Code:
    """Advice on the exported model, and the command that follows it."""
    if judged.verdict == "works":
        window, length = map(format_length, (judged.window, judged.length))
        short = f"over {window} and up to {length} tokens, and the original{original} for shorter"
        span = f"{short} ones" if over else f"up to {length} tokens"
        between = [n for n in judged.lengths if judged.window < n < judged.length]
        checks = (f"{judged.asked(judged.chosen, n)} facts at {format_length(n)}" for n in between)
        checked = f"; spot-checked with {', '.join(checks)}" if between else ""
        advice = f"use it for texts, with the answer, of {span}. It was judged at {length}{checked}"
        return Code(f"{advice}. Longer texts were not tested.", line)
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
    return Code(advice, again(run, *TRAIN))


def _reach(judged: Judged) -> str:
    """The longest length in between that lost no more than a schedule that works may."""
    least = judged.shares(AS_IT_IS, judged.window).rate - MARGIN
    between = [length for length in judged.lengths if judged.window < length < judged.length]
    kept = [n for n in between if judged.of(judged.chosen, n)]
    kept = [n for n in kept if judged.shares(judged.chosen, n).rate >= least]
    if not kept:
        return ""
    at = kept[-1]
    return f": at {format_length(at)} it retrieves {judged.retrieved(judged.chosen, at)}"


def judged_section(judged: Judged, *, is_final: bool = False, goes_on: bool = False) -> Section:
    """The difference after each look; the figures of a verdict that others replaced."""
    name, perplexities = extended(judged.chosen), judged.perplexities()
    if is_final or goes_on:
        text = (Paragraph(f"{judged.so_far}; {judged.price_in_words}."),) if goes_on else ()
        decided = by_documents(judged.looks, judged.chosen, judged.window, judged.length)
        return Section(f"How {name} was judged", (*text, decided, perplexities))
    text = (Paragraph(f"{judged.summary()}; {judged.price_in_words}."),)
    return Section(f"Judged before: {name}", (*text, judged.charts()[0], perplexities))


def _searched(search: SearchResult, judged: Mapping[str, Judged]) -> Section:
    """The methods that were compared, after the reason if their comparison was not asked for."""
    section = schedules.of_search(search)
    *shown, last = section.blocks
    if isinstance(last, Chart):  # of factors, which few people need
        section = section._replace(blocks=(*shown, Details((last,), last.title)))
    first, limit = judged.get("first"), search.legs[0].short_limit
    if search.legs[0].history or not (first and limit and first.costs_more_than(limit)):
        return section
    reason = Paragraph(
        f"Others were tried, since {first.chosen} raises perplexity within "
        f"{format_length(first.window)} by more than the limit of {math.expm1(limit):.0%}."
        f"{_others(search)}{_judged_price(search, first)}"
    )
    return section._replace(blocks=(reason, *section.blocks))


def _judged_price(search: SearchResult, first: Judged) -> str:
    """The price of the chosen method on documents that did not choose it, if it was judged."""
    if first.price is None or search.legs[0].chosen != first.chosen:
        return ""
    price, count = first.price.change, first.price.documents
    return f" On the {count} other documents that judge it, {first.chosen} costs {price}."


def _others(search: SearchResult) -> str:
    """The prices of methods that were not shown to be worse than the chosen one."""
    leg = search.legs[0]
    compared = [name for name in leg.short_costs if name in (leg.chosen, *leg.short_behind)]
    costs = ", ".join(f"{name} {leg.short_costs[name].change}" for name in compared)
    sentences = [f" While choosing, against the unmodified model: {costs}."] if costs else []
    for name, more in leg.short_behind.items():
        sentences.append(
            f" {name} ties with {leg.chosen} at {format_length(leg.length)}; between the two, on "
            f"the same {more.documents} documents of {more.texts} texts: {more.change}."
        )
    return "".join(sentences)


def _exported(
    exports: Exports,
    written: Sequence[Exported],
    verified: Verified | None,
    to_do: Code | None,
    window: int,
    length: int,
) -> Section:
    folder = next((each.path for each in written if each.target == "transformers"), None)
    section = schedules.loading(written, folder, to_do.text if to_do else "", window, length)
    more = [Paragraph(f"Left out: {why}", "warning") for why in exports.left_out.values()]
    if verified is not None:
        more.append(Paragraph(verified.summary()))
        findings = [finding for each in verified.verified for finding in each.findings]
        more += [Paragraph(f"{f.what}: {f.consequence}; {f.remedy}", "warning") for f in findings]
    return section._replace(blocks=(*more, *section.blocks))
