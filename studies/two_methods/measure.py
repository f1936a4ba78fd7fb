"""Two extensions without new angles, one of which prefers random keys at some distances.

make study NAME=two_methods
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ropewalk as rw
from studies.bundled_model.model import SIZES
from studies.bundled_model.train import train_stages
from studies.claims import (
    RETRIEVAL,
    TEXT,
    Arm,
    Cell,
    Claim,
    Known,
    Study,
    asked_for_facts,
    by_task,
    evaluated,
    line_of,
    main,
)
from studies.power import Effect, Power
from studies.training import cells as training
from studies.training.measure import RETRIEVES

FACTOR, STEPS = 8, 1000
RUNS = Path("runs/two_methods")
MODELS = tuple(f"tall, base 500 {seed}" for seed in range(1, 6))
METHOD_1, METHOD_2 = Arm("base_change", steps=STEPS), Arm("two_band", steps=STEPS)
"""The safe base of the target, and linear interpolation from the first pair without a full turn."""
PAPERS = 0.27
"""Long-eval at 30k, Table 4."""


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    """Plan, train and evaluate one model under one method."""
    began = time.process_time()
    path = pretrained(cell.subject)
    own = training.Cell(cell.subject, cell.factor, training.BASE, cell.arm.steps)
    plan = rw.plan(path, own.target, cell.arm.method, notice=lambda _: None).plan
    place = RUNS / f"{own.name}-{cell.arm.method}"
    model = training.trained(own, place, plan, path) / "model"
    found = evaluated(model, [own.target], [*training.TASKS, TEXT], samples)
    shutil.rmtree(place)
    seconds = time.process_time() - began
    return line_of(cell, samples, asked_for_facts(by_task(found)), seconds, path)


def pretrained(name: str) -> str:
    """The folder of the model with base 500, which is trained where it is not there."""
    subject = training.SUBJECTS[name]
    if subject.base and not Path(subject.path).exists():
        size = replace(SIZES[subject.size], base=subject.base)
        train_stages(size, subject.seed, subject.folder, gives_up=False)
    return subject.path


def gain(known: Known, name: str) -> float | None:
    """Method 1 less Method 2, of models that answer half under the better of the two."""
    cells = [Cell(name, FACTOR, arm) for arm in (METHOD_1, METHOD_2)]
    if any(cell not in known for cell in cells):
        return None
    first, second = (known[cell][RETRIEVAL] for cell in cells)
    return first - second if max(first, second) >= RETRIEVES else None


STUDY = Study(
    Path(__file__).parent,
    {FACTOR: [METHOD_1, METHOD_2]},
    [
        Claim(
            "of two methods without new angles, the one with B(m) ≥ 0 retrieves more",
            "Men et al. 2024, Table 4",
            *(FACTOR, METHOD_1, METHOD_2, RETRIEVAL, PAPERS),
            of_model=gain,
        )
    ],
    MODELS,
    measured,
    training.SAMPLES,
    over="seeds of one shape",
    powers=[
        Power(
            (Effect("Method 1 less Method 2, as a share of answers", PAPERS, 0.15),),
            len(MODELS),
            "seeds",
            "the paper's effect; half more than the spread of a tenth of the least base in the "
            "study of the base",
        ),
    ],
)


if __name__ == "__main__":
    main(STUDY)
