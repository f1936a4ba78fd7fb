"""Charts of a precision run, after Fig. 1 of the BFloat16 article."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ropewalk.chart import Axis, Chart, Mark, Series

if TYPE_CHECKING:
    from ropewalk.number_formats.results import LengthEstimate, SequenceMean, ShiftEstimate

DIFFERENCE = "attention difference D"


def chart_of_shifts(arms: Iterable[tuple[str, Sequence[ShiftEstimate]]], reference: int) -> Chart:
    """D against Δ₁: Fig. 1, left."""
    axis = Axis("shift Δ₁", "symlog", linear_to=2.0 * reference)
    lines = ((name, [p.first for p in own], [p.value for p in own]) for name, own in arms)
    return chart(f"Δ₂ = {reference}", axis, DIFFERENCE, lines)


def chart_of_lengths(arms: Iterable[tuple[str, Sequence[LengthEstimate]]]) -> Chart:
    """First-token logit difference against length: Fig. 1, right."""
    axis = Axis("sequence length", "log2", "length")
    lines = ((name, [p.length for p in own], [p.value for p in own]) for name, own in arms)
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
    positive = any(mark.y > 0 for own in series for mark in own.marks)
    return Chart(title, x, Axis(y_label, "log10" if positive else "linear"), tuple(series))
