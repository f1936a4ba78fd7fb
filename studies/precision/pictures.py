"""Charts of the study, after Fig. 1 and Fig. 7 of the BFloat16 article."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from ropewalk.chart import Axis, Chart, Mark, Series
from ropewalk.number_formats.results import DIFFERENCE, SequenceMean, chart
from ropewalk.reports.figures import figure
from studies.precision.findings import ArmResult, Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _sure(values: Iterable[float]) -> list[SequenceMean]:
    return [SequenceMean(value, None, None) for value in values]


def shift_chart(found: Findings) -> Chart:
    """D against Δ₁: Fig. 1, left."""
    lines = (
        (_label(arm), [p.first for p in arm.curve], [p.value for p in arm.curve])
        for arm in found.arms
    )
    return chart(f"Δ₂ = {found.reference}", _shift("Δ₁", found), DIFFERENCE, lines)


def token_chart(found: Findings) -> Chart:
    """The parts of D by the token attended to: Fig. 1, middle."""
    lines = (
        (_label(arm), range(len(arm.tokens)), _sure(arm.tokens))
        for arm in found.arms
        if arm.weights == "given" and arm.arm in ("bf16", "bf16_model")
    )
    axis = Axis("token attended to", "symlog")
    return chart(f"Δ₁ = 0, Δ₂ = {found.reference}", axis, "its part of D", lines)


def length_chart(found: Findings) -> Chart:
    """First-token logit difference against length: Fig. 1, right."""
    lines = (
        (_label(arm), [p.length for p in own], [p.value for p in own])
        for arm in found.arms
        for own in [arm.logit_by_length]
    )
    axis = Axis("sequence length", "log2", "length")
    return chart("first token", axis, "logit difference D_logit", lines)


def sample_chart(found: Findings) -> Chart | None:
    """D against Δ₁ for every sequence alone: Fig. 7, left."""
    arm = found.arm("bf16")
    if arm is None:
        return None
    shifts = [point.first for point in arm.curve]
    title = f"bf16, every sequence, Δ₂ = {found.reference}"
    lines = (("", shifts, _sure(values)) for values in arm.sample_curves)
    return chart(title, _shift("Δ₁", found), DIFFERENCE, lines)


def anchored_chart(found: Findings) -> Chart | None:
    """D against Δ₂ with Δ₁ = 0: Fig. 7, right."""
    arm = found.arm("bf16")
    if arm is None or not arm.anchored:
        return None
    line = ("bf16", [p.second for p in arm.anchored], [p.value for p in arm.anchored])
    return chart("bf16, Δ₁ = 0", Axis("shift Δ₂", "symlog", linear_to=32.0), DIFFERENCE, [line])


def charts(found: Findings) -> dict[str, list[Chart]]:
    """All charts that the measurement has something for, by their figure."""
    alone = [c for c in (sample_chart(found), anchored_chart(found)) if c is not None]
    pages = {
        "shifts": [shift_chart(found), token_chart(found), length_chart(found)],
        "samples": alone,
    }
    shown = {name: [c for c in own if c.series] for name, own in pages.items()}
    return {name: own for name, own in shown.items() if own}


def drawn_figure(kept: object) -> Figure:
    """The figure of charts, as JSON keeps them."""
    shown = []
    for title, x, y, lines, *_ in cast("list[list[Any]]", kept):
        series = (
            Series(label, tuple(Mark(*mark) for mark in marks), *look)
            for label, marks, *look in lines
        )
        shown.append(Chart(title, Axis(*x), Axis(*y), tuple(series)))
    return figure(shown)


def _shift(name: str, found: Findings) -> Axis:
    return Axis(f"shift {name}", "symlog", linear_to=2.0 * found.reference)


def _label(arm: ArmResult) -> str:
    return arm.arm if arm.weights == "given" else f"{arm.arm}, {arm.weights} weights"
