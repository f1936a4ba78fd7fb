"""Pictures of a precision run, after Fig. 1 and Fig. 7 of the BFloat16 article, and its budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ropewalk.extras import required_by
from ropewalk.lengths import format_length
from ropewalk.number_formats.results import TOGETHER, ArmResult, Estimate, Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MeasuredCurve(NamedTuple):
    """One curve, with its interval where there is one."""

    label: str
    x: tuple[int, ...]
    values: tuple[Estimate, ...]


class Picture(NamedTuple):
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[MeasuredCurve, ...]
    x_scale: str = "linear"
    """The scale of matplotlib; `symlog` is linear around 0, and so shows it."""
    linear_to: float = 1.0


def shift_picture(found: Findings) -> Picture:
    """D against Δ₁: Fig. 1, left."""
    return Picture(
        f"Δ₂ = {found.reference}",
        "shift Δ₁",
        "attention difference D",
        tuple(
            MeasuredCurve(
                _label(arm), tuple(p.first for p in arm.curve), tuple(p.value for p in arm.curve)
            )
            for arm in found.arms
        ),
        "symlog",
        linear_to=2.0 * found.reference,
    )


def token_picture(found: Findings) -> Picture:
    """The parts of D by the token attended to: Fig. 1, middle."""
    return Picture(
        f"Δ₁ = 0, Δ₂ = {found.reference}",
        "token attended to",
        "its part of D",
        tuple(
            MeasuredCurve(
                _label(arm),
                tuple(range(len(arm.tokens))),
                tuple(Estimate(value, None, None) for value in arm.tokens),
            )
            for arm in found.arms
            if arm.weights == "given" and arm.arm in ("bf16", "bf16_model")
        ),
        "symlog",
    )


def length_picture(found: Findings) -> Picture:
    """First-token logit difference against length: Fig. 1, right."""
    return Picture(
        "first token",
        "sequence length",
        "logit difference D_logit",
        tuple(
            MeasuredCurve(
                _label(arm),
                tuple(p.length for p in arm.logit_by_length),
                tuple(p.value for p in arm.logit_by_length),
            )
            for arm in found.arms
        ),
        "log",
    )


def sample_picture(found: Findings) -> Picture | None:
    """D against Δ₁ for every sequence alone: Fig. 7, left."""
    arm = found.arm("bf16")
    if arm is None:
        return None
    shifts = tuple(point.first for point in arm.curve)
    return Picture(
        f"bf16, every sequence, Δ₂ = {found.reference}",
        "shift Δ₁",
        "attention difference D",
        tuple(
            MeasuredCurve("", shifts, tuple(Estimate(value, None, None) for value in values))
            for values in arm.sample_curves
        ),
        "symlog",
        linear_to=2.0 * found.reference,
    )


def anchored_picture(found: Findings) -> Picture | None:
    """D against Δ₂ with Δ₁ = 0: Fig. 7, right."""
    arm = found.arm("bf16")
    if arm is None or not arm.anchored:
        return None
    points = arm.anchored
    line = MeasuredCurve("bf16", tuple(p.second for p in points), tuple(p.value for p in points))
    return Picture(
        "bf16, Δ₁ = 0", "shift Δ₂", "attention difference D", (line,), "symlog", linear_to=32.0
    )


def budget_pictures(found: Findings) -> list[Picture]:
    """How far each arm's rotated pairs stray, near and far; logits by the shift."""
    whole = [error for error in found.budget if error.step == TOGETHER]
    shifts = sorted({error.shift for error in whole})
    by_pair = [
        Picture(
            f"positions from {shift:,} on",
            "pair, from fast to slow",
            "error of a rotated pair",
            tuple(
                MeasuredCurve(
                    e.arm,
                    tuple(range(len(e.pair_errors))),
                    tuple(Estimate(value, None, None) for value in e.pair_errors),
                )
                for e in whole
                if e.shift == shift
            ),
        )
        for shift in dict.fromkeys((shifts[0], shifts[-1]))
    ]
    by_shift = tuple(
        MeasuredCurve(
            arm,
            tuple(e.shift for e in whole if e.arm == arm),
            tuple(Estimate(e.logit_error, None, None) for e in whole if e.arm == arm),
        )
        for arm in dict.fromkeys(error.arm for error in whole)
    )
    return [
        *by_pair,
        Picture("all steps", "shift", "error of a logit (rms)", by_shift, "symlog", 512.0),
    ]


def drawings(found: Findings) -> dict[str, list[Picture]]:
    """The values of every picture that the measurement has something for, by its name."""
    alone = [p for p in (sample_picture(found), anchored_picture(found)) if p is not None]
    pages = {
        "shifts": [shift_picture(found), token_picture(found), length_picture(found)],
        "samples": alone,
        "budget": budget_pictures(found) if found.budget else [],
    }
    shown = {name: [p for p in pictures if p.lines] for name, pictures in pages.items()}
    return {name: pictures for name, pictures in shown.items() if pictures}


def figures(found: Findings) -> dict[str, Figure]:
    """Every picture that the measurement has something for, by its name."""
    return {name: _figure(pictures) for name, pictures in drawings(found).items()}


def drawn_figure(kept: object) -> Figure:
    """The figure of one of the drawings, as JSON keeps them."""
    pictures = []
    for value in cast("list[list[Any]]", kept):
        title, x_label, y_label, lines, *scale = value
        read = (
            MeasuredCurve(label, tuple(x), tuple(Estimate(*v) for v in values))
            for label, x, values in lines
        )
        pictures.append(Picture(title, x_label, y_label, tuple(read), *scale))
    return _figure(pictures)


def _label(arm: ArmResult) -> str:
    return arm.arm if arm.weights == "given" else f"{arm.arm}, {arm.weights} weights"


@required_by("a figure")
def _figure(pictures: Sequence[Picture]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(pictures), 4.2), layout="constrained")
    colors: dict[str, str] = {}
    for axes, picture in zip(
        figure.subplots(1, len(pictures), squeeze=False)[0], pictures, strict=True
    ):
        for line in picture.lines:
            color = colors.setdefault(line.label, f"C{len(colors) % 10}")
            drawn = [value.mean for value in line.values]
            wide = len(line.x) > 64
            style = "-" if wide or not line.label else "o-"
            axes.plot(
                line.x,
                drawn,
                style,
                color=color if line.label else "C0",
                label=line.label or None,
                markersize=3,
                linewidth=0.8 if wide or not line.label else 1.3,
            )
            band = [
                (x, v.low, v.high)
                for x, v in zip(line.x, line.values, strict=True)
                if v.low is not None and v.high is not None
            ]
            axes.fill_between(
                [x for x, _, _ in band],
                [low for _, low, _ in band],
                [high for _, _, high in band],
                color=color,
                alpha=0.15,
                linewidth=0,
            )
        if any(value.mean > 0 for line in picture.lines for value in line.values):
            axes.set_yscale("log")
        _shift_axis(axes, picture)
        axes.set_title(picture.title, fontsize=10)
        axes.set_xlabel(picture.x_label, fontsize=9)
        axes.set_ylabel(picture.y_label, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", color="0.92", linewidth=0.6)
        if any(line.label for line in picture.lines):
            axes.legend(frameon=False, fontsize=7)
    return figure


def _shift_axis(axes: object, picture: Picture) -> None:
    from matplotlib.axes import Axes
    from matplotlib.ticker import NullLocator

    assert isinstance(axes, Axes)
    if picture.x_scale == "symlog":
        axes.set_xscale("symlog", linthresh=picture.linear_to)
        axes.set_xlim(left=-0.05 * picture.linear_to)
    elif picture.x_scale == "log":
        axes.set_xscale("log", base=2)
        lengths = sorted({x for line in picture.lines for x in line.x})
        axes.set_xticks(lengths, [format_length(n) for n in lengths])
        axes.xaxis.set_minor_locator(NullLocator())
