"""A second extension by search after training, and short factors of their own.

make study NAME=second_step
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.text import read_text
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import plain, stretches_of
from ropewalk.models.load import LoadedModel, load
from ropewalk.run_directory import Journal
from ropewalk.scaling import linear
from ropewalk.schedule import RotarySchedule
from ropewalk.searching import driver
from ropewalk.searching.model.measure import LocalMeasure
from ropewalk.searching.model.objectives import ModelObjective
from ropewalk.searching.model.settings import PUBLISHED_HEADROOM, published_space
from ropewalk.searching.space import Space
from ropewalk.searching.strategies.evolution import Evolution
from studies.chain.measure import LINEAR, YARN, on_top
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
from studies.training import cells as training

RUNS = Path("runs/second_step")
TRAINED_TO, STEPS = 2, 200
"""Windows of the model, and steps of training at that length."""
FACTOR = 16
"""Windows that the second step reaches: 8 times the trained length."""
UNCHANGED, SEARCHED = Arm("trained"), Arm("second search")
RECOVERED = Arm("second search, recovered")
LINEAR_STRETCHED, TWICE = LINEAR._replace(stretch=1.1), UNCHANGED._replace(stretch=2.0)
"""Planted: more interpolation than the length needs."""
MODELS = tuple(f"narrow {seed}" for seed in range(2, 8))
EVOLUTION = Evolution(population=32, mutations=8, crossovers=8, parents=16, generations=20)
"""Half of each generation, as in the paper beyond 512k, of half as many parents and fewer
generations."""
TOKENS = 6144
"""Of all documents of a search: as in the paper, three at the length of the second step."""
WINDOWS, SHORT = 48, 10
"""Of text at the target, and so many times more within the window."""
NATS = Measure(TEXT, "nats")
ROOM, BROKEN = 0.02, 1.0
"""The gate, in nats per token above the trained schedule within the window: under the worse arm at
least `ROOM`, under the better one at most `BROKEN`."""
SOURCE = "Ding et al. 2024"


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    """The loss of text under one schedule of the trained model."""
    began = time.process_time()
    torch.set_num_threads(1)
    folder = trained(cell.subject)
    plan = plan_of(cell, folder)
    windows = samples * (SHORT if cell.factor == 1 else 1)
    length = cell.factor * training.SUBJECTS[cell.subject].window
    found = evaluated(folder, [length], [TEXT], windows, plan)
    results = [[row.task, row.metric, round(row.value, 5)] for row in found.results]
    line = line_of(cell, samples, results, time.process_time() - began, str(folder))
    factors = plan.longest().rescale_factors.tolist()
    return {**line, "factors": [round(factor, 4) for factor in factors]}


def trained(subject: str) -> Path:
    """The folder of the model after training under the factors that are searched first."""
    own, place = training.SUBJECTS[subject], RUNS / subject.replace(" ", "_")
    if not (done := place / "trained").exists():
        model = load(own.path)
        start = model.present_plan.longest()
        first = searched(model, extending(start, TRAINED_TO * own.window), place / "first.jsonl")
        cell = training.Cell(subject, TRAINED_TO, training.SEARCH, STEPS)
        run = training.trained(cell, place / "unfinished", planned(model, first))
        (run / "model").rename(done)
        shutil.rmtree(place / "unfinished")
    return done


def plan_of(cell: Cell, folder: Path) -> ContextPlan:
    own, place = training.SUBJECTS[cell.subject], folder.parent
    model, target = load(str(folder)), FACTOR * own.window
    present = model.present_plan.longest()
    if cell.arm in (UNCHANGED, TWICE):
        stretched = linear.schedule(present, round(cell.arm.stretch * present.length))
        return planned(model, stretched)
    if cell.arm in (LINEAR, YARN, LINEAR_STRETCHED):
        arm = cell.arm._replace(stretch=1.0)
        return on_top(arm, folder, round(cell.arm.stretch * target))
    long = searched(model, extending(present, target), place / "second.jsonl")
    if cell.arm == SEARCHED:
        return planned(model, long)
    # Less interpolation than at length: the range of the search before training.
    short = Space(
        *(long, own.window, 1.0),
        stock_runtimes=True,
        recover=True,
        highest_factor=PUBLISHED_HEADROOM * TRAINED_TO,
    )
    return planned(model, searched(model, short, place / "recovery.jsonl"))


def extending(start: RotarySchedule, target: int) -> Space:
    """The paper's space without first tokens, which the paper found useless at its target."""
    return published_space(Space(start, target, stock_runtimes=True))


def searched(model: LoadedModel, space: Space, journal: Path) -> RotarySchedule:
    """The best schedule that a search makes by itself: none of those that it starts from."""
    length = space.target_length
    encoder = Encoder(model.tokenizer, model.vocabulary)
    drawn, _ = stretches_of(read_text().tuning, encoder, length, TOKENS // length, seed=0)
    documents = [plain(each, encoder, length) for each in drawn]
    measure = LocalMeasure(model.model, documents, lambda schedule: planned(model, schedule))
    objective = ModelObjective(measure, "perplexity", range(len(documents)), length)
    starts = space.seeds()
    journal.parent.mkdir(parents=True, exist_ok=True)
    kept = Journal(journal)
    outcome = driver.search(
        *(space, objective, EVOLUTION),
        seed=0,
        journal=kept,
        finalists=len(starts) + 1,
    )
    kept.close()
    return space.schedule(
        next(each.candidate for each in outcome.finalists if each.candidate not in starts)
    )


def planned(model: LoadedModel, schedule: RotarySchedule) -> ContextPlan:
    steps = (PlanStep(schedule.length, schedule),)
    return ContextPlan(model.present_plan.model, {FULL_ATTENTION: steps})


def gain(better: Arm, worse: Arm, factor: int) -> Callable[[Known, str], float | None]:
    """The decrease of loss, of models that have room for it and are not broken under both arms."""

    def of_model(known: Known, name: str) -> float | None:
        cells = (Cell(name, 1, UNCHANGED), Cell(name, factor, better), Cell(name, factor, worse))
        if any(cell not in known for cell in cells):
            return None
        least, one, other = (known[cell][NATS] for cell in cells)
        return other - one if other - least >= ROOM and one - least <= BROKEN else None

    return of_model


def less(perplexity: float, other: float) -> float:
    """The paper's difference of two perplexities, in nats a token."""
    return math.log(other / perplexity)


COMPARED = (
    (
        "factors searched for the window over those of the second step",
        *("Table 10", 1, RECOVERED, SEARCHED, less(3.85, 4.51)),
        (UNCHANGED, TWICE),
    ),
    (
        "a second search without hand-designed winners over yarn",
        *("Table 9", FACTOR, SEARCHED, YARN, less(7.08, 8.27)),
        (LINEAR, LINEAR_STRETCHED),
    ),
    (
        "a second search without hand-designed winners over linear",
        *("Table 9", FACTOR, SEARCHED, LINEAR, less(7.08, 20.17)),
        (LINEAR, LINEAR_STRETCHED),
    ),
)
"""All of the paper's 2048k from 256k."""
SPREADS = (0.08, 0.1, 0.2)
"""Between models. In the study of the chain the second step differs by 0.094 against YaRN and 0.077
against linear interpolation between five shapes, and what it costs text within the window, against
the trained models of the study of training, by 0.052. Raised, since the step is 8 times here."""

CLAIMS = [
    Claim(
        *(f"{words}, text", f"{SOURCE}, {table}", factor, better, worse, NATS, size, planted),
        of_model=gain(better, worse, factor),
    )
    for words, table, factor, better, worse, size, planted in COMPARED
]

STUDY = Study(
    Path(__file__).parent,
    {
        1: [UNCHANGED, TWICE, SEARCHED, RECOVERED],
        FACTOR: [SEARCHED, YARN, LINEAR, LINEAR_STRETCHED],
    },
    CLAIMS,
    MODELS,
    measured,
    WINDOWS,
    over="seeds of one shape",
    powers=powers_of(
        *(CLAIMS, SPREADS, len(MODELS), "seeds"),
        "the paper's effect; the spread from the study of the chain, raised",
    ),
)


if __name__ == "__main__":
    main(STUDY)
