"""Training in two stages against one, under searched factors, by text of an eighth of the target.

make study NAME=two_stages
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ropewalk.models.load import load
from studies.claims import (
    TEXT,
    Arm,
    Cell,
    Claim,
    Known,
    Measure,
    Study,
    evaluated,
    line_of,
    main,
    powers_of,
)
from studies.second_step import measure as second_step
from studies.second_step.measure import SOURCE, extending, less, planned, searched
from studies.training import cells as training

RUNS = Path("runs/two_stages")
HALF, WHOLE = 4, 8
"""Windows of the model: what one stage reaches, and both. Text of one window is an eighth."""
STEPS = (80, 120)
STAGED, DIRECT, SHORT = Arm("two stages"), Arm("one stage"), Arm("one stage, text of half")
UNTRAINED = Arm("untrained")
MODELS = second_step.MODELS[:5]
WINDOWS = 480
NATS = Measure(TEXT, "nats")
ROOM = 0.02
"""The gate: the least gain of training in two stages, in nats per token."""


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    """Search, train and evaluate one model in one way."""
    began = time.process_time()
    torch.set_num_threads(1)
    own, place = training.SUBJECTS[cell.subject], RUNS / cell.subject.replace(" ", "_")
    model = load(own.path)
    start = model.present_plan.longest()
    plans = {
        windows: planned(
            model,
            searched(model, extending(start, windows * own.window), place / f"{windows}.jsonl"),
        )
        for windows in (HALF, WHOLE)
    }
    folder, unfinished = own.path, place / "unfinished"
    # Windows of the factors and of the text; each stage has data of its own.
    stages = {
        STAGED: ((HALF, HALF, STEPS[0], 0), (WHOLE, HALF, STEPS[1], 1)),
        DIRECT: ((WHOLE, WHOLE, sum(STEPS), 0),),
        SHORT: ((WHOLE, HALF, sum(STEPS), 0),),
        UNTRAINED: (),
    }
    for windows, text, steps, order in stages[cell.arm]:
        asked = training.Cell(cell.subject, windows, cell.arm.method, steps, order, window=text)
        run = training.trained(asked, unfinished / asked.name, plans[windows], folder)
        folder = str(run / "model")
    plan = plans[WHOLE] if cell.arm == UNTRAINED else None
    found = evaluated(folder, [cell.factor * own.window], [TEXT], samples, plan)
    shutil.rmtree(unfinished, ignore_errors=True)
    results = [[row.task, row.metric, round(row.value, 5)] for row in found.results]
    line = line_of(cell, samples, results, time.process_time() - began)
    factors = plans[WHOLE].longest().rescale_factors.tolist()
    return {**line, "factors": [round(factor, 4) for factor in factors]}


def gain(other: Arm) -> Callable[[Known, str], float | None]:
    """The decrease of loss by two stages, of models in which training gains something."""

    def of_model(known: Known, name: str) -> float | None:
        cells = [Cell(name, 1, arm) for arm in (STAGED, other, UNTRAINED)]
        if any(cell not in known for cell in cells):
            return None
        staged, less_staged, untrained = (known[cell][NATS] for cell in cells)
        return less_staged - staged if untrained - staged >= ROOM else None

    return of_model


CLAIMS = [
    Claim(
        *(f"{words}, text of an eighth", f"{SOURCE}, Table 12", 1, STAGED, arm, NATS, size),
        planted=(STAGED, UNTRAINED),
        of_model=gain(arm),
    )
    for words, arm, size in (
        ("two stages over one", DIRECT, less(2.66, 4.51)),
        ("two stages over one with text of half the length", SHORT, less(2.66, 9.75)),
    )
]

STUDY = Study(
    Path(__file__).parent,
    {1: [UNTRAINED, STAGED, DIRECT, SHORT]},
    CLAIMS,
    MODELS,
    measured,
    WINDOWS,
    over="seeds of one shape",
    powers=powers_of(
        *(CLAIMS, (0.1, 0.1), len(MODELS), "seeds"),
        "the paper's effect; four times the spread of two stages at the target in the study of the "
        "chain",
    ),
)


if __name__ == "__main__":
    main(STUDY)
