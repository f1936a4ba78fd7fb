"""The results of `extend`'s stages: light values, which are read back without torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from ropewalk.audit.files.check import Verdict as Examined
from ropewalk.blocks import Cell, Table
from ropewalk.chart import Chart, Mark, TileGrid
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError
from ropewalk.evaluation.planted import text_of
from ropewalk.evaluation.select import Paired, paired
from ropewalk.evaluation.statistics import enough, mixed_mean_interval
from ropewalk.evaluation.tables import gain
from ropewalk.evaluation.verdict import JUDGED_FROM, LOOKS, TO_WORK, Look, Shares, Verdict, looks_of
from ropewalk.exporting.exported import Exported
from ropewalk.interval import Interval
from ropewalk.lengths import format_length
from ropewalk.pipeline.charts import LOSS, RETRIEVED, PlantedFact, before_and_after, by_depth, names
from ropewalk.records import AS_IT_IS, EXACT_MATCH
from ropewalk.run_directory import check_kept
from ropewalk.runtimes.finding import Finding
from ropewalk.schedule import RotaryGeometry
from ropewalk.training.results import TrainedStage
from ropewalk.untrusted import Fields, read_json
from ropewalk.values import Drawn, Result

R = TypeVar("R", bound=Result)
NOT_MEASURED = "not measured"
TRAINED = "trained"
"""The name of the trained model, among methods."""
WORST_FIRST: tuple[Verdict, ...] = ("does not work", "cannot be judged", "undecided", "works")
SO_FAR = "-so-far.json"
"""The ending of what a stage keeps while it judges, for the page."""
MAX_BYTES = 64 * 2**20
"""The largest file of a stage: a search of a thousand candidates has a long history."""


@dataclass(frozen=True, eq=False)
class Inspected(Result):
    """The start and the end of the way."""

    model: str
    method: str
    geometry: RotaryGeometry
    serves: int
    target_length: int

    def derived(self) -> dict[str, object]:
        return {"scale": self.target_length / self.serves}

    def summary(self) -> str:
        return (
            f"{self.model}: {self.method}, serves {format_length(self.serves)} tokens; to "
            f"{format_length(self.target_length)}, {self.target_length / self.serves:g} times as "
            "many"
        )


@dataclass(frozen=True)
class DocumentRead:
    """One document, read under one schedule."""

    _optional: ClassVar = ("found", "missed")  # which earlier runs did not keep

    method: str
    length: int
    source: str
    text: float
    """Nats a token of its text."""
    answers: float
    """Nats a token of its answers."""
    retrieved: float
    """The share of its facts that were answered exactly."""
    facts: int
    found: tuple[float, ...] = ()
    """The depths of those facts: 0 at the beginning of the document, 1 at its end."""
    missed: tuple[float, ...] = ()
    """The depths of the others."""


@dataclass(frozen=True)
class Example:
    """A question to a document of the target length, with what the model answers."""

    _optional: ClassVar = ("lines",)  # which earlier runs did not keep

    question: str
    answer: str
    before: str
    after: str
    depth: float
    """The depth of the fact that is asked for."""
    lines: str = ""
    """Its line in the document, between its neighbours."""

    def __str__(self) -> str:
        return (
            f"a document says, {self.depth:.0%} of the way in, that {self.question!r} is "
            f"{self.answer!r}; asked at the end, the unmodified model answers {self.before!r}, the "
            f"extended one {self.after!r}"
        )


@dataclass(frozen=True, eq=False)
class Judged(Drawn):
    """What documents say of a schedule: all figures follow from their readings."""

    rows_in = "readings"

    chosen: str
    plan: ContextPlan
    window: int
    """The length that the unmodified model serves."""
    length: int
    readings: tuple[DocumentRead, ...]
    example: Example | None

    def derived(self) -> dict[str, object]:
        last = self.looks[-1] if self.looks else None
        return {"verdict": self.verdict, "look": last}

    def with_more(self, readings: Sequence[DocumentRead]) -> Judged:
        return replace(self, readings=(*self.readings, *readings))

    def of(self, method: str, length: int) -> list[DocumentRead]:
        return [each for each in self.readings if (each.method, each.length) == (method, length)]

    def shares(self, method: str, length: int) -> Shares:
        readings = self.of(method, length)
        facts = sum(each.facts for each in readings) / max(1, len(readings))
        return Shares([each.retrieved for each in readings], facts, _texts(readings))

    @cached_property
    def looks(self) -> tuple[Look, ...]:
        reference = self.shares(AS_IT_IS, self.window)
        return looks_of(self.shares(self.chosen, self.length), reference)

    @property
    def verdict(self) -> Verdict:
        return self.looks[-1].verdict if self.looks else "undecided"

    @cached_property
    def price(self) -> Paired | None:
        """Nats a token of text that the schedule costs within the window; None before it is read
        there."""
        return self._change(lambda each: each.text, self.window)

    def _both(self, length: int) -> list[tuple[DocumentRead, DocumentRead]]:
        """The documents of a length that the unmodified model and the schedule read."""
        after = {each.source: each for each in self.of(self.chosen, length)}
        before = self.of(AS_IT_IS, length)
        return [(each, after[each.source]) for each in before if each.source in after]

    def _change(self, value: Callable[[DocumentRead], float], length: int) -> Paired | None:
        """The schedule minus the unmodified model, on the documents of a length that both read."""
        both = self._both(length)
        values = np.array([[value(each) for each in pair] for pair in both])
        texts = _texts([after for _, after in both])
        return paired(values[:, 1], values[:, 0], texts) if both else None

    def costs_more_than(self, limit: float) -> bool:
        """True if documents show that the price is above a limit, in nats a token."""
        return self.price is not None and self.price.difference.is_above(limit)

    def asked(self, method: str, length: int) -> int:
        """The number of facts that were asked for."""
        return sum(each.facts for each in self.of(method, length))

    def retrieved(self, method: str, length: int) -> str:
        """The share of all facts, with its interval."""
        shares = self.shares(method, length)
        return str(shares.estimate()) if shares.shares else NOT_MEASURED

    @property
    def so_far(self) -> str:
        """What stopping now would mean; between two looks nothing is decided."""
        if not self.looks:
            return ""
        last = self.looks[-1]
        decided = last.verdict if last.documents in LOOKS else "undecided"
        read = f"{last.documents} document{'s' * (last.documents > 1)}"
        text = f"{read}: {last.rate:.0%} retrieved, {self._difference}"
        return f"{text}; stopping now would mean: {decided}"

    @property
    def _difference(self) -> str:
        gained_now = gain(EXACT_MATCH.name, self.looks[-1].difference).text
        return f"{gained_now} against the unmodified model within {format_length(self.window)}"

    @property
    def before(self) -> str:
        """The unmodified model, at both lengths."""
        return (
            f"retrieval {self.retrieved(AS_IT_IS, self.length)} at {format_length(self.length)}, "
            f"{self.retrieved(AS_IT_IS, self.window)} within its own {format_length(self.window)}"
        )

    @cached_property
    def kept(self) -> Paired | None:
        """The change in the share of facts that are retrieved within the original window."""
        return self._change(lambda each: each.retrieved, self.window)

    @property
    def price_in_words(self) -> str:
        """The change in perplexity, and any loss of retrieval, within the original window."""
        if self.kept is None or not self.kept.difference.is_below(0):
            return self.text_in_words
        rates = (self.shares(method, self.window).rate for method in (AS_IT_IS, self.chosen))
        change = " to ".join(f"{rate:.0%}" for rate in rates)
        window = format_length(self.window)
        return f"{self.text_in_words}; retrieval within {window} falls from {change}"

    @property
    def text_in_words(self) -> str:
        """The change in perplexity alone."""
        price, turned = self.price, "rises"
        if price is None or (ends := price.difference.ends) is None:
            return f"its effect on short text was {NOT_MEASURED}"
        low, high = sorted(abs(math.expm1(end)) for end in ends)
        change = f"{abs(math.expm1(price.difference.value)):.1%} ({100 * low:.1f} to {high:.1%})"
        if price.difference.is_below(0):
            turned = "falls"
        elif not price.difference.is_above(0):
            change = f"at most {math.expm1(ends[1]):.1%}"
        return f"perplexity within {format_length(self.window)} {turned} by {change}"

    def summary(self) -> str:
        return f"{self.chosen}: {self.verdict} at {format_length(self.length)}: {self.evidence}"

    @property
    def evidence(self) -> str:
        """What the verdict rests on, and what would settle it."""
        if not self.looks:
            return f"was {NOT_MEASURED}"
        said = (
            f"retrieves {self.retrieved(self.chosen, self.length)} of the facts in "
            f"{self.looks[-1].documents} documents, {self._difference}"
        )
        return "; ".join(filter(None, (said, self.doubt)))

    @property
    def doubt(self) -> str:
        """The documents that would settle an open verdict, in words; empty if it is not open."""
        if self.verdict == "cannot be judged":
            return (
                "these questions are too hard for it: the model answers under "
                f"{JUDGED_FROM:.0%} within its own window. Ask an easier task: `evaluate` with "
                "`tasks` passkey,perplexity"
            )
        if self.verdict != "undecided" or not self.looks:
            return ""
        if (more := self.looks[-1].more) is None:
            return "no reachable number of documents would decide"
        return f"about {more:,} more documents would decide"

    @property
    def lengths(self) -> list[int]:
        """The lengths of the documents."""
        return sorted({each.length for each in self.readings})

    def charts(self) -> list[Chart]:
        """Retrieval by length, and perplexity within the window and at the target, for which the
        few documents in between are too few; before and after."""
        ends = (self.window, self.length)
        retrieved = before_and_after(RETRIEVED, self._rate, self.chosen, self.lengths or ends)
        counts = (f"{self.asked(self.chosen, n)} at {format_length(n)}" for n in self.lengths)
        caption = (
            "95% Wilson intervals over facts, wider if documents or their texts differ by more "
            f"than chance. Facts asked for: {', '.join(counts)}."
        )
        if any(mark.is_rough for series in retrieved.series for mark in series.marks):
            caption += f" Hollow: a spot check of fewer than {TO_WORK} documents."
        few, many = (len(self.of(method, self.length)) for method in (AS_IT_IS, self.chosen))
        if 0 < few < many:
            caption += (
                f" At {format_length(self.length)}, the unmodified model reads {few} of the {many} "
                "documents, to save time: enough to show whether it fails."
            )
        return [
            retrieved._replace(caption=caption),
            before_and_after(LOSS, self._perplexity, self.chosen, ends),
        ]

    def perplexities(self) -> Table:
        """Perplexity before and after, and the change, on the documents that both read."""
        rows = []
        for length in (self.window, self.length):
            if (change := self._change(lambda each: each.text, length)) is None:
                continue
            read = [_perplexity(readings) for readings in zip(*self._both(length), strict=True)]
            note = f"{change.documents} documents{', a spot check' * (change.documents < TO_WORK)}"
            row = (_cell(each) for each in (*read, change.change))
            rows.append((Cell(format_length(length), length, quiet=note), *row))
        return Table(
            f"{LOSS.label.capitalize()} of the same texts, with 95% intervals",
            ("length", *names(self.chosen).values(), "change"),
            tuple(rows),
            "Lower is better. Compare along a row: each length has other texts.",
        )

    def by_depth(self) -> list[TileGrid]:
        """Facts found by depth and length, before and after; none of runs without depths."""
        facts = {
            name: {length: self._facts(method, length) for length in self.lengths}
            for method, name in names(self.chosen).items()
        }
        depths = [f.depth for row in facts.values() for each in row.values() for f in each]
        return [
            by_depth(name.capitalize(), row, max(depths))
            for name, row in facts.items()
            if any(row.values())
        ]

    def _facts(self, method: str, length: int) -> list[PlantedFact]:
        return sorted(
            PlantedFact(depth, is_found, each.source)
            for each in self.of(method, length)
            for is_found, depths in ((True, each.found), (False, each.missed))
            for depth in depths
        )

    def _rate(self, method: str, length: int) -> Mark | None:
        shares = self.shares(method, length)
        if not shares.shares:
            return None
        return Mark.of(length, shares.estimate())._replace(is_rough=len(shares.shares) < TO_WORK)

    def _perplexity(self, method: str, length: int) -> Mark | None:
        readings = self.of(method, length)
        return Mark.of(length, _perplexity(readings)) if readings else None


def _perplexity(read: Sequence[DocumentRead]) -> Interval:
    text = [each.text for each in read]
    ends = mixed_mean_interval(text, enough(_texts(read)))
    loss = Interval.of(math.fsum(text) / len(text), ends, "nats", "documents")
    return loss.mapped(math.exp, "perplexity")


def _cell(interval: Interval) -> Cell:
    return Cell(interval.number(), interval.value, quiet=interval.range())


def _texts(readings: Sequence[DocumentRead]) -> list[str]:
    return [text_of(each.source) for each in readings]


def final(results: Mapping[str, Result]) -> Judged:
    """The verdict on what is exported: the trained model, or else the last of the best schedules.

    One that was chosen for its price takes no place of one that retrieves better, as far as told.
    """
    *others, last = (each for each in results.values() if isinstance(each, Judged))
    return last if last.chosen == TRAINED else max([last, *reversed(others)], key=_standing)


def _standing(judged: Judged) -> tuple[int, float]:
    unsure = judged.verdict == "undecided" and judged.looks
    return WORST_FIRST.index(judged.verdict), judged.looks[-1].rate if unsure else 0.0


@dataclass(frozen=True, eq=False)
class TrainingResult(Result):
    """The trained weights, with the config that the model came with, and how the loss went."""

    folder: Path
    stage: TrainedStage
    left_out: int
    """Documents that share text with those of the evaluation."""

    def summary(self) -> str:
        text = (
            f"Trained for {len(self.stage.steps):,} steps with {self.stage.method}: "
            f"{self.stage.loss_in_words()}."
        )
        if self.left_out:
            plural = "s that share" if self.left_out > 1 else " that shares"
            text += f" Left out: {self.left_out} document{plural} text with the evaluation."
        return text


IN_FOLDER = "train the model's folder of safetensors under it"
"""The advice where llama.cpp runs a GGUF file, which is not trained."""


@dataclass(frozen=True, eq=False)
class Exports(Result):
    """The exports, each with its proof, and those left out, with the reason."""

    never_empty = ("written",)

    written: tuple[Exported, ...]
    left_out: Mapping[str, str]
    sha256: Mapping[str, str]
    """The SHA-256 of every file that was written, by its path in the run directory."""

    @property
    def of_gguf(self) -> bool:
        """True of a GGUF file's extension, which has no folder."""
        return all(each.path.suffix for each in self.written)

    def summary(self) -> str:
        return " ".join(each.summary() for each in self.written)


class VerifiedFile(NamedTuple):
    path: Path
    verdict: Examined
    findings: tuple[Finding, ...]
    not_established: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Verified(Result):
    """The findings in the files that were written; none of them is a fault."""

    verified: tuple[VerifiedFile, ...]

    def summary(self) -> str:
        names = [each.path.name for each in self.verified if each.verdict == "OK"]
        lines = []
        if names:
            does = "was read back from disk and holds"
            if len(names) > 1:
                does = "were read back from disk and hold"
            lines.append(f"{' and '.join(names)} {does} the schedule that was judged.")
        for each in self.verified:
            if each.verdict == "not established":
                lines.append(f"Whether {each.path.name} holds that schedule was not established.")
            lines += [_sentence(finding.what) for finding in each.findings]
            lines += [f"Not established: {line}." for line in each.not_established]
        return " ".join(lines)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def run_id(configuration: Mapping[str, object]) -> str:
    """The mark of a run's results, so that those of another are not taken for them."""
    text = json.dumps(configuration, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sealed(name: str, configuration: Mapping[str, object], result: Result) -> dict[str, object]:
    """A stage's result as its file has it."""
    return {"stage": name, "run": run_id(configuration), "result": result.to_json()}


def read_result(file: Path, name: str, kind: type[R], run: str) -> R:
    """Read a stage's result; a file of another run or stage is refused by name."""
    remedy = f"remove {file.name} to have the stage done again"
    try:
        fields = Fields(read_json(file, max_bytes=MAX_BYTES), f"{file}: ")
        identity = fields.text("stage"), fields.text("run")
        value = fields.take("result")
        fields.close()
        if identity != (name, run):
            raise InputError(f"{file}: is the result of stage {identity[0]!r} of another run")
    except InputError as error:
        raise InputError(f"{error}; {remedy}") from None
    check_kept(file, file.parent)  # first: no number can be derived from any value at all
    return kind.from_json(value, fields.of("result"))
