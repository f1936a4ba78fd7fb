"""The results of a precision run: estimates with intervals, and a verdict in words. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

import numpy as np

from ropewalk.blocks import Block, Cell, Heading, Paragraph, Table, Title
from ropewalk.chart import Axis, Chart, Mark, Series
from ropewalk.evaluation.statistics import FEWEST, t_interval
from ropewalk.interval import written
from ropewalk.lengths import format_length
from ropewalk.values import Drawn, decode, encode, table_in

if TYPE_CHECKING:
    from ropewalk.chart import Chart


DIFFERENCE = "attention difference D"


def chart_of_shifts(arms: Iterable[tuple[str, Sequence[ShiftEstimate]]], reference: int) -> Chart:
    """D against Δ₁: Fig. 1, left."""
    axis = Axis("shift Δ₁", "symlog", linear_to=2.0 * reference)
    lines = ((name, [p.first for p in curve], [p.value for p in curve]) for name, curve in arms)
    return chart(f"Δ₂ = {reference}", axis, DIFFERENCE, lines)


def chart_of_lengths(arms: Iterable[tuple[str, Sequence[LengthEstimate]]]) -> Chart:
    """First-token logit difference against length: Fig. 1, right."""
    axis = Axis("sequence length", "log2", "length")
    lines = ((name, [p.length for p in curve], [p.value for p in curve]) for name, curve in arms)
    return chart("first token", axis, "logit difference D_logit", lines)


def chart(
    title: str,
    x: Axis,
    y_label: str,
    lines: Iterable[tuple[str, Iterable[float], Iterable[SequenceMean]]],
) -> Chart:
    """Values on a logarithmic scale, unless all are 0."""
    series = [
        Series(label, tuple(Mark(at, *value) for at, value in zip(xs, values, strict=True)),
               look=None if label else 0)
        for label, xs, values in lines
    ]  # fmt: skip
    positive = any(mark.y > 0 for line in series for mark in line.marks)
    return Chart(title, x, Axis(y_label, "log10" if positive else "linear"), tuple(series))


T = TypeVar("T", bound=tuple[Any, ...])
Record = Mapping[str, Any]


def as_list(kind: type[T]) -> type[T]:
    """Make a NamedTuple a list in JSON: a run has thousands of them."""
    hint: Any = tuple.__class_getitem__(tuple(get_type_hints(kind).values()))
    named: Any = kind
    named.to_json = lambda self: [encode(item) for item in self]
    named.from_json = lambda value, path: kind(*decode(hint, value, path))
    return kind


@as_list
class SequenceMean(NamedTuple):
    """A mean over sequences with its 95% interval; None for fewer than five sequences.

    A list in JSON, not an `Interval`: a run has thousands of them, all of one unit and level.
    """

    mean: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return short(self.mean)
        return written(self.mean, (self.low, self.high), short)


@as_list
class ShiftEstimate(NamedTuple):
    first: int
    second: int
    value: SequenceMean


@as_list
class LengthEstimate(NamedTuple):
    length: int
    value: SequenceMean


@dataclass(frozen=True)
class ArmResult:
    """The effect of a shift under one arm."""

    arm: str
    curve: tuple[ShiftEstimate, ...]
    """D of Eq. 4 by Δ₁ against the reference shift."""
    by_sequence: tuple[float, ...]
    """D of every sequence between 0 and the reference shift."""
    attention_by_length: tuple[LengthEstimate, ...]
    logit_by_length: tuple[LengthEstimate, ...]
    growth: SequenceMean | None
    """The exponent of first-token D_logit in length."""
    loss: SequenceMean
    """The next-token loss at the reference shift."""
    loss_change: SequenceMean
    """Mean absolute change of a sequence's loss over all shifts."""

    @property
    def strays(self) -> SequenceMean:
        """D between 0 and the reference shift."""
        return next(p.value for p in self.curve if p.first == 0)


@dataclass(frozen=True)
class Gain:
    """A trap of one way of loading the model, its remedy, and the measured gain."""

    path: str
    trap: str
    remedy: str
    table_error: float
    logit_error_before: float
    logit_error_after: float
    loss_before: float
    loss_after: float


@dataclass(frozen=True, eq=False)
class Precision(Drawn):
    """The effect of a shift of all positions under each number format, and a verdict in words."""

    rows_in = "arms"

    model: str
    length: int
    reference: int
    sequences: int
    device: str
    arms: tuple[ArmResult, ...]
    traps: tuple[Gain, ...]

    def arm(self, name: str) -> ArmResult | None:
        return next((arm for arm in self.arms if arm.arm == name), None)

    @property
    def main(self) -> ArmResult:
        """The arm that the verdict speaks of: bf16 as it is commonly run, if it was measured."""
        return self.arm("bf16") or self.arms[-1]

    @property
    def verdict(self) -> list[str]:
        """The findings that a practitioner needs, one sentence per line, each with its number."""
        return [self._strays(), *self._grows(), self._moves(), *self._loading()]

    def derived(self) -> dict[str, object]:
        return {"verdict": self.verdict}

    def summary(self) -> str:
        shown = ", ".join(f"{arm.arm} {arm.strays}" for arm in self.arms)
        if any(arm.strays.low is None for arm in self.arms):
            shown += " (no intervals: they need five sequences)"
        traps = "; ".join(f"{gain.path}: {gain.trap}" for gain in self.traps)
        return (
            f"{self.model} on {self.sequences} sequences of {format_length(self.length)} tokens: "
            f"a shift by {self.reference} positions changes attention by D = {shown}. "
            + (f"Traps of loading: {traps}." if traps else "No trap of loading.")
        )

    def blocks(self) -> Iterator[Block]:
        table = table_in(Path(__file__).with_name("arms.json"))
        measured = f"{self.sequences} sequences of {format_length(self.length)} tokens"
        yield Title(self.model, f" on {self.device}, {measured}")
        yield Table(
            "",
            ("arm", "D", "growth", "loss", "moved"),
            tuple(
                (
                    Cell(arm.arm),
                    Cell(f"{arm.strays.mean:.2g}", arm.strays.mean, quiet=_ends(arm.strays)),
                    Cell("–" if arm.growth is None else f"{arm.growth.mean:+.2f}"),
                    Cell(f"{arm.loss.mean:.4f}", arm.loss.mean),
                    Cell(f"{arm.loss_change.mean:.1e}", arm.loss_change.mean),
                )
                for arm in self.arms
            ),
            f"D: the change of attention between shifts 0 and {self.reference}, Eq. 4; growth: the "
            "power of length that the first token's logit difference follows; moved: how far a "
            f"shift moves the loss; intervals: 95%, Student's t over sequences, from {FEWEST} on",
        )
        for arm in self.arms:
            yield Paragraph(f"  {arm.arm}: {table[arm.arm]['told']}")
        yield Heading("What it means")
        yield from (Paragraph(f"- {line}") for line in self.verdict)
        yield from self.charts()

    def charts(self) -> list[Chart]:
        """D by the shift, and the logit difference by length: Fig. 1 of the article."""
        return [
            chart_of_shifts([(arm.arm, arm.curve) for arm in self.arms], self.reference),
            chart_of_lengths([(arm.arm, arm.logit_by_length) for arm in self.arms]),
        ]

    def _strays(self) -> str:
        arm, exact = self.main, self.arm("fp32")
        line = (
            f"{arm.arm}: a shift by {self.reference} changes attention by D = {arm.strays} at "
            f"{format_length(self.length)} tokens"
        )
        ratio = None if exact in (None, arm) else times(arm.by_sequence, exact.by_sequence)
        return line if ratio is None else f"{line}, {ratio} times fp32"

    def _grows(self) -> list[str]:
        if self.main.growth is None:
            return []
        _, low, high = self.main.growth
        if low is None or high is None:
            word = f"is not judged from fewer than {FEWEST} sequences; it goes"
        elif low > 0:
            word = "grows"
        elif high < 0:
            word = "falls"
        else:
            word = "neither grows nor falls for certain"
        return [
            f"{self.main.arm}: the first token's logit difference {word} with length, "
            f"as length to the power {self.main.growth}"
        ]

    def _moves(self) -> str:
        arm, exact = self.main, self.arm("fp32")
        line = (
            f"{arm.arm}: a shift changes the next-token loss of {arm.loss.mean:.4f} by "
            f"{arm.loss_change}"
        )
        if exact in (None, arm):
            return line
        apart = arm.loss.mean - exact.loss.mean
        return f"{line}; without a shift it is {apart:+.4f} against fp32"

    def _loading(self) -> list[str]:
        lines = [
            f"TRAP, {gain.path}: {gain.trap}. Remedy: {gain.remedy}. Measured: logit error "
            f"{short(gain.logit_error_before)} to {short(gain.logit_error_after)}, loss "
            f"{gain.loss_before:.4f} to {gain.loss_after:.4f}"
            for gain in self.traps
        ]
        if not any(gain.path == "as given" for gain in self.traps):
            lines.insert(0, "as given: no trap; cos and sin are those of the config")
        return lines


def summarise(records: Sequence[Record]) -> tuple[ArmResult, ...]:
    """The records of shifts, one an arm and sequence, to one result an arm, in their order."""
    arms = dict.fromkeys(record["arm"] for record in records)
    return tuple(_arm_result(arm, [r for r in records if r["arm"] == arm]) for arm in arms)


def _arm_result(arm: str, records: Sequence[Record]) -> ArmResult:
    points = [record["points"] for record in records]
    curve = tuple(
        ShiftEstimate(
            col[0]["first"], col[0]["second"], estimate(point["attention"][-1] for point in col)
        )
        for col in zip(*points, strict=True)
    )
    base = [next(point for point in row if point["first"] == 0) for row in points]
    return ArmResult(
        arm=arm,
        curve=curve,
        by_sequence=tuple(point["attention"][-1] for point in base),
        attention_by_length=by_length(base, "attention"),
        logit_by_length=by_length(base, "logit"),
        growth=growth(base),
        loss=estimate(point["losses"][1] for point in base),
        loss_change=estimate(
            float(np.mean([abs(p["losses"][0] - p["losses"][1]) for p in row])) for row in points
        ),
    )


def by_length(points: Sequence[Record], key: str) -> tuple[LengthEstimate, ...]:
    return tuple(
        LengthEstimate(length, estimate(point[key][i] for point in points))
        for i, length in enumerate(points[0]["lengths"])
    )


def growth(points: Sequence[Record]) -> SequenceMean | None:
    """The slope of log D_logit over log length, fitted to each sequence."""
    lengths = points[0]["lengths"]
    if len(lengths) < 3:
        return None
    curves = [point["logit"] for point in points if min(point["logit"]) > 0]
    if not curves:
        return None
    return estimate(float(np.polyfit(np.log(lengths), np.log(curve), 1)[0]) for curve in curves)


def estimate(values: Iterable[float]) -> SequenceMean:
    """The mean of independent values, with Student's interval."""
    sample = list(values)
    return SequenceMean(float(np.mean(sample)), *(t_interval(sample) or (None, None)))


def geometric(values: Iterable[float]) -> SequenceMean:
    """The geometric mean of positive values: mean and interval are those of their logarithms."""
    mean, *ends = estimate(math.log(value) for value in values)
    return SequenceMean(math.exp(mean), *(None if end is None else math.exp(end) for end in ends))


def times(ours: Sequence[float], theirs: Sequence[float]) -> SequenceMean | None:
    """The ratio of our D to theirs, sequence by sequence; None if some have nothing to divide."""
    if not all(value > 0 for value in (*ours, *theirs)):
        return None
    return geometric(a / b for a, b in zip(ours, theirs, strict=True))


def _ends(mean: SequenceMean) -> str:
    return "" if mean.low is None or mean.high is None else f"{mean.low:.2g}–{mean.high:.2g}"


def short(value: float) -> str:
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return "∞"
    return f"{value:.2e}" if abs(value) < 1e-3 or abs(value) >= 1e5 else f"{value:.3g}"
