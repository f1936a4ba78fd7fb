"""Training at 8 times the window with bases below and above the bound.

make study NAME=base
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import ropewalk as rw
from benchmarks.text import read_text
from docs.figures import Picture
from studies.bundled_model.model import SIZES
from studies.claims import (
    RETRIEVAL,
    TEXT,
    Arm,
    Cell,
    Claim,
    Measure,
    Study,
    asked_for_facts,
    line_of,
    main,
    values,
)
from studies.training import cells as training
from studies.training.measure import FIRST, MORE

FACTOR, STEPS = 8, 200
RUNS = Path("runs/base")
SOURCE = "Men et al. 2024"
LINES = "lines"
"""Long-eval's, which hardly any of these models can answer."""


def by_base(least_bases: float, steps: int = STEPS) -> Arm:
    return Arm("base_change", steps=steps, base=least_bases)


SAFE, HALF_TRAINED = by_base(0), by_base(0, STEPS // 2)
"""The safe base of the theory is the method's own."""
TENTH, HUNDREDTH, THOUSANDTH, LARGE, HUGE = map(by_base, (0.1, 0.01, 0.001, 100, 10_000))
BY_BASE = (THOUSANDTH, HUNDREDTH, TENTH, SAFE, LARGE, HUGE)
TWO_BANDS = Arm("two_band", steps=STEPS)
"""The paper's Method 2, which on these heads hardly has the fault that it has in the paper."""

CLAIMS = [
    Claim(words, f"{SOURCE}, {where}", FACTOR, better, worse, RETRIEVAL)
    for words, where, better, worse in (
        ("the safe base over a tenth of the least base", "Fig. 6 and 9", SAFE, TENTH),
        ("the safe base over a thousandth of the least base", "Fig. 3", SAFE, THOUSANDTH),
        ("100 times the least base over a tenth of it", "Fig. 6 and 9", LARGE, TENTH),
        ("10,000 times the least base over a thousandth of it", "Fig. 3", HUGE, THOUSANDTH),
        ("the safe base over 10,000 times the least base", "§7, a question", SAFE, HUGE),
    )
]


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    began = time.process_time()
    arm, path = cell.arm, training.SUBJECTS[cell.subject].path
    own = training.Cell(cell.subject, cell.factor, training.BASE, arm.steps)
    base = arm.base * bound(cell.subject, own.target)[0]
    planned = rw.plan(
        path,
        own.target,
        arm.method,
        parameters={"base": base} if base else None,
        notice=lambda _: None,
    )
    place = RUNS / f"{own.name}-{arm.method}-{arm.base:g}"
    model = training.trained(own, place, planned.plan) / "model"
    asked = rw.evaluate(
        str(model),
        methods=["none"],
        lengths=[own.target],
        tasks=[*training.TASKS, LINES, TEXT],
        samples=samples,
        mode="generate",
        corpus=read_text().reporting,
        notice=lambda _: None,
    )
    found = {row.task: row.value for row in asked.results if row.metric in (RETRIEVAL.metric, TEXT)}
    shutil.rmtree(place)
    return line_of(cell, samples, asked_for_facts(found), time.process_time() - began)


def bound(subject: str, length: int) -> tuple[float, float]:
    """The least and the safe base for a length."""
    head_dim = SIZES[training.SUBJECTS[subject].size].head_dim
    row = rw.bound(length, head_dim=head_dim).rows[0]
    assert row.infimum is not None
    assert row.safe is not None
    return row.infimum, row.safe


def bases() -> Picture:
    """The loss of text and the retrieval by base, as in Fig. 6 of the paper."""
    from matplotlib.figure import Figure

    known = values(STUDY.file)
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, measure, title in zip(
        panels,
        (Measure(TEXT, "nats"), RETRIEVAL),
        ("text: nats per token above those of the safe base", "retrieval: share of answers"),
        strict=True,
    ):
        for subject in STUDY.models:
            least, safe = bound(subject, FACTOR * training.SUBJECTS[subject].window)
            points = {
                arm.base or safe / least: known[cell][measure]
                for arm in BY_BASE
                if (cell := Cell(subject, FACTOR, arm)) in known
            }
            if safe / least not in points:
                continue
            zero = 0.0 if measure == RETRIEVAL else points[safe / least]
            xs = sorted(points)
            axes.plot(xs, [points[x] - zero for x in xs], ".-", linewidth=0.8, label=subject)
        axes.axvline(1, color="black", linestyle=":", label="the bound")
        axes.set_xscale("log")
        axes.set_xlabel("base, in least bases for the length")
        axes.set_title(title, fontsize="medium")
    panels[1].legend(fontsize="x-small")
    return Picture(figure)


STUDY = Study(
    Path(__file__).parent,
    {FACTOR: [SAFE, TENTH, THOUSANDTH, LARGE, HUGE, HUNDREDTH, HALF_TRAINED, TWO_BANDS]},
    CLAIMS,
    (*FIRST, *MORE),
    measured,
    training.SAMPLES,
)


if __name__ == "__main__":
    main(STUDY)
