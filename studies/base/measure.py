"""Training at 8 times the window with bases below and above the bound.

make study NAME=base
"""

from __future__ import annotations

import math
import shutil
import time
from itertools import product
from pathlib import Path
from typing import Any

import ropewalk as rw
from benchmarks.text import read_text
from docs.figures import Picture
from studies.bundled_model.model import SIZES
from studies.claims import (
    LINES,
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


def by_base(least_bases: float, steps: int = STEPS) -> Arm:
    return Arm("base_change", steps=steps, base=least_bases)


SAFE, PLANTED = by_base(0), by_base(0, STEPS // 2)
"""The safe base of the theory, which is the method's own. Planted: half of the training."""
TENTH, HUNDREDTH, THOUSANDTH, LARGE, HUGE = map(by_base, (0.1, 0.01, 0.001, 100, 10_000))
BY_BASE = (THOUSANDTH, HUNDREDTH, TENTH, SAFE, LARGE, HUGE)
TWO_BANDS = Arm("two_band", steps=STEPS)
"""The paper's Method 2: no angle is new, and similar tokens are not preferred at many distances."""
SIZE = 0.27
"""Table 4 at 30k, the one fall in retrieval that the paper gives as a number."""
NEGLIGIBLE = 0.03
"""Nats per token."""


COMPARED = (
    ("the safe base over a tenth of the least base", "Fig. 6 and 9", TENTH, SIZE),
    ("the safe base over a thousandth of the least base", "Fig. 3", THOUSANDTH, SIZE),
    ("the safe base over two bands", "Table 4", TWO_BANDS, SIZE),
    ("the safe base over 10,000 times the least base", "§7, a question", HUGE, math.nan),
)
ASKED = (("", RETRIEVAL), (", Long-eval", LINES))
CLAIMS = [
    Claim(words + task, f"{SOURCE}, {where}", FACTOR, SAFE, worse, measure, size, (SAFE, PLANTED))
    for (words, where, worse, size), (task, measure) in product(COMPARED, ASKED)
]
UNHARMED = Claim(
    f"a thousandth of the least base costs text less than {NEGLIGIBLE} nats",
    f"{SOURCE}, Fig. 3 and 6",
    FACTOR,
    THOUSANDTH,
    SAFE,
    Measure(TEXT, "nats"),
    margin=NEGLIGIBLE,
)


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
        tasks=[*training.TASKS, LINES.task, TEXT],
        samples=samples,
        mode="generate",
        corpus=read_text().reporting,
        notice=lambda _: None,
    )
    found = {row.task: row.value for row in asked.results if row.metric in (LINES.metric, TEXT)}
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
    {FACTOR: [SAFE, PLANTED, TENTH, THOUSANDTH, TWO_BANDS, HUGE, HUNDREDTH, LARGE]},
    [*CLAIMS, UNHARMED],
    (*FIRST, *MORE),
    measured,
    training.SAMPLES,
)


if __name__ == "__main__":
    main(STUDY)
