"""Training at 8 times the window with bases below and above the bound.

make study NAME=base
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ropewalk as rw
from docs.figures import Picture
from ropewalk.evaluation.charts import DepthGrid
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.theory.decay import decay
from studies.bundled_model.model import SIZES
from studies.claims import (
    RETRIEVAL,
    TEXT,
    Arm,
    Cell,
    Claim,
    Known,
    Measure,
    Study,
    asked_for_facts,
    by_task,
    evaluated,
    line_of,
    main,
    values,
)
from studies.pretrained.measure import LOW as PRETRAINED_LOW
from studies.pretrained.measure import STUDY as PRETRAINED
from studies.pretrained.measure import trained as pretrained
from studies.training import cells as training
from studies.training.measure import FIRST, MORE, PILOT, RETRIEVES

FACTOR, STEPS = 8, 200
RUNS = Path("runs/base")
SOURCE = "Men et al. 2024"
LINES = "lines"
"""The task of Long-eval, which hardly any of these models can answer."""

# The *least base* of a length is the bound of the paper: the lowest base that works for it. An arm
# is a way to extend and train; its base is a multiple of the least base for the target, so that
# arms mean the same for models of all sizes.
SAFE_BASE = 0.0
"""The base of an arm that names none: base_change then takes the safe base."""


def by_base(least_bases: float, steps: int = STEPS) -> Arm:
    return Arm("base_change", steps=steps, base=least_bases)


SAFE, HALF_TRAINED = by_base(SAFE_BASE), by_base(SAFE_BASE, STEPS // 2)
THOUSANDTH, HUNDREDTH, TENTH = map(by_base, (0.001, 0.01, 0.1))
LARGE, HUGE = map(by_base, (100, 10_000))
BETWEEN = tuple(map(by_base, (0.00316, 0.0316, 0.316)))
"""The geometric means of neighbours among 0.001, 0.01, 0.1 and the bound."""
BELOW = (BETWEEN[0], HUNDREDTH, *BETWEEN[1:])
"""The bases below the bound that were run on one machine, so on the same weights."""
BY_BASE = (THOUSANDTH, *BELOW, TENTH, SAFE, LARGE, HUGE)

# Rescue (Fig. 7): models that were pre-trained with a base far too small.
RESCUED = Arm("base_change, pre-trained with base 100", steps=STEPS)
NOT_ENOUGH = RESCUED._replace(base=HUNDREDTH.base)
"""As far below the bound as 10,000 at 32k in the paper."""
KEPT = Arm("base 100, pre-trained with base 100", steps=STEPS)
LONG_RESCUED, LONG_NOT_ENOUGH = (arm._replace(steps=1000) for arm in (RESCUED, NOT_ENOUGH))
"""As many steps as in the paper."""

# Islands: the middles of the widest gap between two islands of working bases, and of both islands.
BEFORE_GAP, IN_GAP, AFTER_GAP = AROUND_GAP = tuple(
    Arm(f"base_change, {where}", steps=STEPS)
    for where in ("before the gap", "in the gap", "after the gap")
)
BY_GAP = ("tall", "narrow", "low base", "high base", "bundled")
"""Five sizes with more than one island; `high base` is there for this alone."""

TWO_BANDS = Arm("two_band", steps=STEPS)
"""The paper's Method 2, which on these heads hardly has the fault that it has in the paper."""


@cache
def _before_training() -> Known:
    return values(PRETRAINED.file)


def retrieved_first(better: Arm, worse: Arm) -> Callable[[Known, str], float | None]:
    """The gain of the better arm, for models that retrieve within their window under base 100."""

    def gain(known: Known, name: str) -> float | None:
        before = _before_training().get(Cell(name, 1, PRETRAINED_LOW))
        cells = [Cell(name, FACTOR, arm) for arm in (better, worse)]
        if before is None or before[RETRIEVAL] < RETRIEVES or any(c not in known for c in cells):
            return None
        return known[cells[0]][RETRIEVAL] - known[cells[1]][RETRIEVAL]

    return gain


COMPARED = [
    Claim(words, f"{SOURCE}, {where}", FACTOR, better, worse, RETRIEVAL)
    for words, where, better, worse in (
        ("the safe base over a tenth of the least base", "Fig. 6 and 9", SAFE, TENTH),
        ("the safe base over a thousandth of the least base", "Fig. 3", SAFE, THOUSANDTH),
        ("100 times the least base over a tenth of it", "Fig. 6 and 9", LARGE, TENTH),
        ("10,000 times the least base over a thousandth of it", "Fig. 3", HUGE, THOUSANDTH),
        ("the safe base over 10,000 times the least base", "§7, a question", SAFE, HUGE),
    )
]


class Reach(NamedTuple):
    """The share of a length that a base reaches, by three predictions."""

    by_decay: float
    """L_θ (Eq. 17): up to there, similar keys score above random ones."""
    by_least_base: float
    """The longest length whose least base is not above the base."""
    by_safe_base: float
    """The longest length with which all bases from this one on work."""


def reach(base: float, head_dim: int, length: int) -> Reach:
    """The three predictions for one base, as shares of a length."""
    geometry = RotaryGeometry(head_dim, head_dim, base, length)
    by_decay = decay(RotarySchedule.plain(geometry), length).effective_length or length
    lengths, least, safe = _bounds(head_dim, length)
    by_bound = [max(lengths[bounds <= base], default=0) for bounds in (least, safe)]
    return Reach(by_decay / length, by_bound[0] / length, by_bound[1] / length)


@cache
def _bounds(head_dim: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least and the safe base for lengths, eight in an octave."""
    lengths = np.unique(np.geomspace(16, length, 8 * int(np.log2(length / 16)) + 1).round())
    rows = rw.bound([int(each) for each in lengths], head_dim=head_dim).rows
    return lengths, np.array([row.infimum for row in rows]), np.array([row.safe for row in rows])


def shares(known: Known, name: str) -> tuple[np.ndarray, list[Reach]] | None:
    """The share of the length that a model retrieves from and the predicted ones, for each base
    below the bound; None if a base is missing.

    Answers lie at even depths, so the first is the share of questions that are answered.
    """
    cells = [Cell(name, FACTOR, arm) for arm in BELOW]
    if any(cell not in known for cell in cells):
        return None
    subject = training.SUBJECTS[name]
    length, head_dim = FACTOR * subject.window, SIZES[subject.size].head_dim
    least, _ = bound(name, length)
    retrieved = np.array([known[cell][RETRIEVAL] for cell in cells])
    return retrieved, [reach(cell.arm.base * least, head_dim, length) for cell in cells]


def correlated(prediction: str) -> Callable[[Known, str], float | None]:
    """Pearson's correlation of retrieval with a predicted share, over the bases below the bound."""

    def correlation(known: Known, name: str) -> float | None:
        both = shares(known, name)
        if both is None:
            return None
        retrieved, reaches = both
        predicted = [getattr(each, prediction) for each in reaches]
        return float(np.corrcoef(retrieved, predicted)[0, 1])

    return correlation


def within(known: Known, name: str) -> float | None:
    """The mean of L_θ / L minus the share of L that is retrieved from."""
    both = shares(known, name)
    if both is None:
        return None
    retrieved, reaches = both
    return float(np.mean([each.by_decay for each in reaches] - retrieved))


def outside(known: Known, name: str) -> float | None:
    """The mean answers of the islands on both sides of a gap, less those of the gap."""
    cells = [Cell(name, FACTOR, arm) for arm in AROUND_GAP]
    if any(cell not in known for cell in cells):
        return None
    before, inside, after = (known[cell][RETRIEVAL] for cell in cells)
    return (before + after) / 2 - inside


RESCUES = [
    Claim(
        words,
        f"{SOURCE}, {where}",
        FACTOR,
        better,
        worse,
        RETRIEVAL,
        of_model=retrieved_first(better, worse),
    )
    for words, where, better, worse in (
        ("pre-trained with base 100, the safe base over base 100", "Fig. 7", RESCUED, KEPT),
        (
            "pre-trained with base 100, the safe base over a hundredth of the least base",
            "Fig. 7",
            RESCUED,
            NOT_ENOUGH,
        ),
        (
            "under the safe base, pre-trained with the usual base over 100",
            "Fig. 7, a question",
            SAFE,
            RESCUED,
        ),
        (
            "with base 100, then 1,000 steps, the safe base over a hundredth of the least base",
            "Fig. 7",
            LONG_RESCUED,
            LONG_NOT_ENOUGH,
        ),
    )
]
PREDICTED = [
    Claim(words, f"{SOURCE}, Eq. 17", FACTOR, BELOW[-1], BELOW[0], RETRIEVAL, of_model=value)
    for words, value in (
        ("correlation of retrieval with L_θ", correlated("by_decay")),
        ("correlation of retrieval with the length by the least base", correlated("by_least_base")),
        ("correlation of retrieval with the length by the safe base", correlated("by_safe_base")),
        ("below the least base, retrieval stays within L_θ", within),
    )
]
ISLANDS = Claim(
    "bases in islands over one in the gap between them",
    "our question",
    FACTOR,
    BEFORE_GAP,
    IN_GAP,
    RETRIEVAL,
    of_model=outside,
)
CLAIMS = [*COMPARED, *RESCUES, *PREDICTED, ISLANDS]


def measured(
    cell: Cell, samples: int, tasks: Sequence[str] = (*training.TASKS, LINES, TEXT)
) -> dict[str, Any]:
    """Plan, train and evaluate one model under one arm."""
    began = time.process_time()
    arm, path = cell.arm, training.SUBJECTS[cell.subject].path
    trained = training.Cell(cell.subject, cell.factor, training.BASE, arm.steps)
    # The model and the base that the arm's name stands for; the method is always a change of base.
    base = arm.base * bound(cell.subject, trained.target)[0]
    method = arm.method
    if method in (RESCUED.method, KEPT.method):
        path = pretrained(Cell(cell.subject, 1, PRETRAINED_LOW))
        base = 100.0 if method == KEPT.method else base
        method = SAFE.method
    elif cell.arm in AROUND_GAP:
        base = around_gap(cell.subject, trained.target)[cell.arm]
        method = SAFE.method
    planned = rw.plan(
        path,
        trained.target,
        method,
        parameters=None if base == SAFE_BASE else {"base": base},
        notice=lambda _: None,
    )
    # Weights take gigabytes and can be trained again, so only the line of results is kept.
    run = RUNS / f"{trained.name}-{arm.method}-{arm.base:g}".replace(" ", "_")
    model = training.trained(trained, run, planned.plan, path) / "model"
    evaluation = evaluated(model, [trained.target], tasks, samples)
    shutil.rmtree(run)
    results = asked_for_facts(by_task(evaluation))
    line = line_of(cell, samples, results, time.process_time() - began, path)
    return {**line, "by_depth": by_depth(evaluation.depth_grids)}


def by_depth(grids: Sequence[DepthGrid]) -> list[float]:
    """The share of answers of the tasks together, in equal parts of the context from its start."""
    rows = zip(*(grid.rows for grid in grids if grid.task in training.TASKS), strict=True)
    cells = [[cell for (cell,) in row if cell is not None] for row in rows]
    return [
        round(sum(cell.right for cell in row) / sum(cell.total for cell in row), 4) for row in cells
    ]


def bound(subject: str, length: int) -> tuple[float, float]:
    """The least and the safe base for a length."""
    head_dim = SIZES[training.SUBJECTS[subject].size].head_dim
    row = rw.bound(length, head_dim=head_dim).rows[0]
    assert row.infimum is not None
    assert row.safe is not None
    return row.infimum, row.safe


def around_gap(subject: str, length: int) -> dict[Arm, float]:
    """The bases of the three arms, for the gap that is widest as a ratio."""
    head_dim = SIZES[training.SUBJECTS[subject].size].head_dim
    islands = rw.bound(length, head_dim=head_dim, islands=True).rows[0].islands
    assert islands is not None
    before, after = max(pairwise(islands), key=lambda two: two[1].low / two[0].high)
    ends = (before.low, before.high), (before.high, after.low), (after.low, after.high)
    return {arm: math.sqrt(low * high) for arm, (low, high) in zip(AROUND_GAP, ends, strict=True)}


def bases() -> Picture:
    """The loss of text and the retrieval by base, as in Fig. 6 of the paper."""
    from matplotlib.figure import Figure

    known = values(STUDY.file)
    # Each model against its own loss under the safe base: models of many sizes share one axis.
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
            # The arm of the safe base has none of its own, so it stands where that base is.
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


def is_run(cell: Cell) -> bool:
    """True if the protocol has the cell: gaps need islands, and long training is for four
    models."""
    if cell.arm in AROUND_GAP:
        return cell.subject in BY_GAP
    if cell.arm in (LONG_RESCUED, LONG_NOT_ENOUGH):
        return cell.subject in FIRST[:4]
    return cell.subject != PILOT


STUDY = Study(
    Path(__file__).parent,
    {
        FACTOR: [
            *(SAFE, TENTH, THOUSANDTH, LARGE, HUGE, RESCUED, KEPT, NOT_ENOUGH),
            *(HUNDREDTH, *BETWEEN, HALF_TRAINED, TWO_BANDS),
            *(*AROUND_GAP, LONG_RESCUED, LONG_NOT_ENOUGH),
        ]
    },
    CLAIMS,
    (*FIRST, *MORE, PILOT),
    measured,
    training.SAMPLES,
)
STUDY = STUDY._replace(left_out=[cell for cell in STUDY.cells() if not is_run(cell)])


if __name__ == "__main__":
    main(STUDY)
