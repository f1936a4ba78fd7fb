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
    base = arm.base * least_base(path, own.target)
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


def least_base(path: str, length: int) -> float:
    head_dim = rw.load(path).model.config.head_dim
    least = rw.bound(length, head_dim=head_dim, only="infimum").rows[0].infimum
    assert least is not None
    return least


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
