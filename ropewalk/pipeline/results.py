"""The results of `extend`'s stages: light values, which are read back without torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ropewalk.audit.files.check import Verdict
from ropewalk.errors import InputError
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.evaluation.statistics import NO_INTERVAL, is_significant
from ropewalk.evaluation.verdict import THRESHOLD, Look
from ropewalk.exporting.exported import Exported
from ropewalk.lengths import format_length
from ropewalk.records import AS_IT_IS, NLL, PERPLEXITY
from ropewalk.reports.chart import Chart
from ropewalk.reports.extend import MethodBars, by_length
from ropewalk.reports.figures import figure
from ropewalk.run_directory import check_kept
from ropewalk.runtimes.finding import Finding
from ropewalk.schedule import RotaryGeometry
from ropewalk.training.results import TrainedStage
from ropewalk.untrusted import Fields, read_json
from ropewalk.values import Result, check_member

if TYPE_CHECKING:
    from matplotlib.figure import Figure

R = TypeVar("R", bound=Result)
NOT_MEASURED = "not measured"
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


class Ranked(NamedTuple):
    method: str
    reason: str
    cells: tuple[tuple[str, str], ...] = ()
    """The reason as cells of a table, by column."""


@dataclass(frozen=True, eq=False)
class Compared(Result):
    """The methods that theory can judge, best first, and why the others are not among them."""

    ranked: tuple[Ranked, ...]
    refused: Mapping[str, str]

    def summary(self) -> str:
        return f"by theory: {', '.join(row.method for row in self.ranked[:3])} …"


class AtTarget(NamedTuple):
    """One method at the target length."""

    retrieval: float | None
    """The share of the answers of all tasks that were exact; None if none was asked for."""
    retrieval_low: float | None
    """The 95% interval; None for too few samples."""
    retrieval_high: float | None
    perplexity: float | None
    """None if no document is long enough."""
    perplexity_low: float | None
    perplexity_high: float | None

    def __str__(self) -> str:
        return f"retrieval {self.retrieved}, perplexity {self._perplexed()}"

    @property
    def retrieved(self) -> str:
        if self.retrieval is None:
            return NOT_MEASURED
        if self.retrieval_low is None or self.retrieval_high is None:
            return f"{self.retrieval:.0%} ({NO_INTERVAL})"
        ends = f"{100 * self.retrieval_low:.0f} to {self.retrieval_high:.0%}"
        return f"{self.retrieval:.0%} ({ends})"

    def _perplexed(self) -> str:
        if self.perplexity is None:
            return NOT_MEASURED
        if self.perplexity_low is None or self.perplexity_high is None:
            return f"{self.perplexity:.1f} ({NO_INTERVAL})"
        return f"{self.perplexity:.1f} ({self.perplexity_low:.1f} to {self.perplexity_high:.1f})"


@dataclass(frozen=True, eq=False)
class EvaluatedExtension(Evaluated):
    """An evaluation of the chosen schedule and its rivals."""

    chosen: str
    """The exported method: the schedule that the search stage chose on other documents, or the
    model that was trained with it."""
    best_hand_designed: str
    pooled: Mapping[str, tuple[MethodBars, ...]]
    """All tasks of a metric together, by method and length."""
    at_target: Mapping[str, AtTarget]

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, name in (
            ("at_target", AS_IT_IS),
            ("chosen", self.chosen),
            ("best_hand_designed", self.best_hand_designed),
        ):
            check_member(name, self.at_target, key)

    @property
    def before(self) -> AtTarget:
        """The unmodified model."""
        return self.at_target[AS_IT_IS]

    @property
    def after(self) -> AtTarget:
        return self.at_target[self.chosen]

    def summary(self) -> str:
        return f"{self.chosen}: {self.after}"

    def charts(self) -> list[Chart]:
        """Retrieval and perplexity by length, each method next to the others."""
        return by_length(self.pooled, self.original_length, self.chosen)

    def figure(self) -> Figure:
        """Retrieval and perplexity by length, each method next to the others."""
        return figure(self.charts())


@dataclass(frozen=True, eq=False)
class Training(Result):
    """The trained weights, with the config that the model came with, and how the loss went."""

    folder: Path
    stage: TrainedStage
    left_out: int
    """Documents that share text with those of the evaluation."""

    def summary(self) -> str:
        told = (
            f"Trained for {len(self.stage.steps):,} steps with {self.stage.method}: "
            f"{self.stage.loss_in_words()}."
        )
        if self.left_out:
            plural = "s that share" if self.left_out > 1 else " that shares"
            told += f" Left out: {self.left_out} document{plural} text with the evaluation."
        return told


class Difference(NamedTuple):
    """The chosen schedule minus the unmodified model, on the same samples."""

    task: str
    metric: str
    length: int
    difference: float
    low: float | None
    high: float | None
    adjusted_p: float | None
    """None if there are too few samples for a test."""

    @property
    def is_worse(self) -> bool:
        worse = self.difference > 0 if self.metric == "nll" else self.difference < 0
        return worse and is_significant(self.adjusted_p)

    def __str__(self) -> str:
        """The change, with its interval. A difference of losses is a ratio of perplexities."""
        as_ratio = self.metric == NLL.name

        def shown(value: float) -> str:
            return f"{math.expm1(value):+.1%}" if as_ratio else f"{100 * value:+.0f} points"

        what = self.task
        if as_ratio and self.task != PERPLEXITY.name:
            what = f"perplexity of {self.task}"
        said = f"{what} at {format_length(self.length)} {shown(self.difference)}"
        if self.low is None or self.high is None:
            return f"{said} ({NO_INTERVAL})"
        return f"{said} ({shown(self.low)} to {shown(self.high)})"


@dataclass(frozen=True, eq=False)
class ShortText(Result):
    """The cost of the chosen schedule at the lengths that the model served before."""

    chosen: str
    differences: tuple[Difference, ...]

    def summary(self) -> str:
        worse = [difference for difference in self.differences if difference.is_worse]
        if not self.differences:
            return "No length within the original length was evaluated."
        if all(difference.adjusted_p is None for difference in self.differences):
            return "There are too few samples to compare within the original length."
        untested = [d for d in self.differences if d.adjusted_p is None]
        if not worse:
            said = f"Within the original length, {self.chosen} shows no significant loss."
            names = ", ".join(f"{d.task} at {format_length(d.length)}" for d in untested)
            return f"{said} There are too few samples to tell: {names}." if untested else said
        return (
            f"Within the original length, {self.chosen} is worse than the unmodified model: "
            f"{', '.join(map(str, worse))}. `ropewalk search --recover` searches a separate "
            "schedule for these lengths."
        )

    @property
    def price(self) -> str:
        """The change in perplexity at the longest length that was served before, in one clause."""
        own = [d for d in self.differences if (d.task, d.metric) == (PERPLEXITY.name, NLL.name)]
        if not own:
            return f"what it costs on short text was {NOT_MEASURED}"
        last = max(own, key=lambda d: d.length)
        to = f"up to {format_length(last.length)}"
        if last.low is None or last.high is None:
            return (
                f"it changes perplexity by {math.expm1(last.difference):+.1%} {to} ({NO_INTERVAL})"
            )
        ends = sorted(abs(math.expm1(end)) for end in (last.low, last.high))
        told = f"{abs(math.expm1(last.difference)):.1%} ({100 * ends[0]:.1f} to {ends[1]:.1%})"
        if last.low > 0:
            return f"it costs {told} of perplexity {to}"
        if last.high < 0:
            return f"it lowers perplexity by {told} {to}"
        return f"it costs at most {math.expm1(last.high):.1%} of perplexity {to}"


@dataclass(frozen=True, eq=False)
class Judged(Result):
    """The verdict on the exported schedule at the target."""

    chosen: str
    length: int
    looks: tuple[Look, ...]
    """At more and more samples, until one decides; none if no task fits the length."""

    def derived(self) -> dict[str, object]:
        more = self.looks[-1].more if self.looks and self.verdict == "undecided" else None
        return {"verdict": self.verdict, "threshold": THRESHOLD, "more": more}

    @property
    def verdict(self) -> str:
        return self.looks[-1].verdict if self.looks else "undecided"

    def summary(self) -> str:
        said = f"{self.verdict} at {format_length(self.length)}"
        if not self.looks:
            return f"{said}: retrieval {NOT_MEASURED}"
        last = self.looks[-1]
        told = f"threshold {THRESHOLD:.0%}, {last.samples} samples"
        if last.low is None or last.high is None:
            told = f"{NO_INTERVAL}, {told}"
        else:
            told = f"{100 * last.low:.0f} to {last.high:.0%}, {told}"
        said += f": retrieval {last.rate:.0%} ({told})"
        if self.verdict != "undecided":
            return said
        if last.more is None:
            return f"{said}; no number of samples in reach would tell, so close is the threshold"
        return f"{said}; about {last.more:,} more samples would tell"


@dataclass(frozen=True, eq=False)
class Exports(Result):
    """The exports, each with its proof, and those left out, with the reason."""

    never_empty = ("written",)

    written: tuple[Exported, ...]
    left_out: Mapping[str, str]
    sha256: Mapping[str, str]
    """The SHA-256 of every file that was written, by its path in the run directory."""

    def summary(self) -> str:
        return " ".join(each.summary() for each in self.written)


class VerifiedFile(NamedTuple):
    path: Path
    verdict: Verdict
    findings: tuple[Finding, ...]
    not_established: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Verified(Result):
    """The findings in the files that were written; none of them is a fault."""

    verified: tuple[VerifiedFile, ...]

    def summary(self) -> str:
        names = [each.path.name for each in self.verified if each.verdict == "OK"]
        told = []
        if names:
            does = "was read back from disk and follows"
            if len(names) > 1:
                does = "were read back from disk and follow"
            told.append(f"{' and '.join(names)} {does} the plan.")
        for each in self.verified:
            if each.verdict == "not established":
                told.append(f"Whether {each.path.name} follows the plan was not established.")
            told += [_sentence(finding.what) for finding in each.findings]
            told += [f"Not established: {line}." for line in each.not_established]
        return " ".join(told)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def run_id(configuration: Mapping[str, object]) -> str:
    """The mark of a run's results, so that those of another are not taken for them."""
    text = json.dumps(configuration, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_result(file: Path, name: str, kind: type[R], run: str) -> R:
    """Read a stage's result; a file of another run or stage is refused by name."""
    remedy = f"remove {file.name} to have the stage done again"
    try:
        fields = Fields(read_json(file, max_bytes=MAX_BYTES), f"{file}: ")
        found = fields.text("stage"), fields.text("run")
        value = fields.take("result")
        fields.close()
        if found != (name, run):
            raise InputError(f"{file}: is the result of stage {found[0]!r} of another run")
        result = kind.from_json(value, fields.of("result"))
    except InputError as error:
        raise InputError(f"{error}; {remedy}") from None
    check_kept(file, file.parent)
    return result
