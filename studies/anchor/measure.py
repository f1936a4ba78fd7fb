"""AnchorAttention's layouts compared after training, at 8 times the window.

make study NAME=anchor
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import Tensor, nn

import ropewalk as rw
from benchmarks.text import read_text
from ropewalk.attention import interface
from ropewalk.context_plan import ContextPlan
from ropewalk.models.config import BUNDLED_FOLDERS
from studies.claims import (
    RETRIEVAL,
    TEXT,
    Arm,
    Cell,
    Claim,
    Known,
    Measure,
    Study,
    answers_and_text,
    asked_for_facts,
    by_task,
    line_of,
    main,
    retrieved,
)
from studies.training import cells as training
from studies.training.measure import FIRST, MORE

FACTOR, STEPS, FEW_STEPS = 8, 200, 50
RUNS = Path("runs/anchor")
SIZES = {"full": 0.0685, "intra": 0.0328, "reset": 0.0322, "interleaved": 0.0648}
"""The gain of AnchorAttention over a layout at 64k, after training on SlimPajama-64K."""
BEYOND = Measure("retrieval at twice the trained length", RETRIEVAL.metric)
BEYOND_SAMPLES, TEXT_WINDOWS = 24, 40


def trained(layout: str, steps: int = STEPS, method: str = "base_change") -> Arm:
    return Arm(method, layout=layout, steps=steps)


ANCHOR, PLANTED = trained("anchor"), trained("anchor", STEPS // 2)
"""Planted: half of the training."""
ROUNDED = "base_change, attention in bfloat16"
RAISED = {"yarn": "yarn on the raised base", "ntk": "ntk on the raised base"}
EARLY, EARLY_PLANTED = trained("anchor", FEW_STEPS), trained("anchor", FEW_STEPS * 4 // 5)
"""Planted: four fifths of the training."""
YARN, NTK = (trained("anchor", FEW_STEPS, method) for method in RAISED.values())


FIVE, TAGGED = "base_change, five last checkpoints", "base_change, five last checkpoints, tags"
LONGER_STEPS = 100
WITHIN = Measure("retrieval within the window", RETRIEVAL.metric)
TEXT_WITHIN = Measure("text within the window", "nats")


def averaged(layout: str, steps: int = LONGER_STEPS, method: str = FIVE) -> Arm:
    return trained(layout, steps, method)


MEAN_ANCHOR, MEAN_TAGGED = averaged("anchor"), averaged("anchor", method=TAGGED)
MEAN_PLANTED = averaged("anchor", LONGER_STEPS * 4 // 5)
"""Planted: four fifths of the training."""


def rounded(layout: str) -> Arm:
    return trained(layout, FEW_STEPS, ROUNDED)


def keeps_more_beyond(known: Known, name: str) -> float | None:
    """How much less retrieval YaRN loses from the trained length to twice that."""
    yarn, base = (known.get(Cell(name, FACTOR, arm)) for arm in (YARN, EARLY))
    if yarn is None or base is None:
        return None
    return (yarn[BEYOND] - yarn[RETRIEVAL]) - (base[BEYOND] - base[RETRIEVAL])


def claims() -> list[Claim]:
    source = "Wang et al. 2024"
    control, early = (ANCHOR, PLANTED), (EARLY, EARLY_PLANTED)
    mean = MEAN_ANCHOR, MEAN_PLANTED
    table = f"{source}, Table 5"
    return [
        *(
            Claim(
                f"anchor over {name}", table, FACTOR, ANCHOR, trained(name), RETRIEVAL, x, control
            )
            for name, x in SIZES.items()
        ),
        *(
            Claim(
                f"anchor over {name}, 50 steps",
                *(table, FACTOR, EARLY, trained(name, FEW_STEPS), RETRIEVAL, SIZES[name], early),
            )
            for name in ("full", "intra", "interleaved")
        ),
        *(
            Claim(
                f"anchor over {name}, 50 steps, attention in bfloat16",
                *(table, FACTOR, rounded("anchor"), rounded(name), RETRIEVAL, SIZES[name], early),
            )
            for name in ("full", "intra", "reset")
        ),
        Claim(
            "reset over intra, 50 steps, attention in bfloat16",
            *(table, FACTOR, rounded("reset"), rounded("intra"), RETRIEVAL, 0.0144, early),
        ),
        Claim(
            "anchor over full, 50 steps, at twice the trained length",
            *("our question", FACTOR, EARLY, trained("full", FEW_STEPS), BEYOND),
        ),
        *(
            Claim(
                f"the raised base over {method} on top of it",
                *(f"{source}, Table 2", FACTOR, EARLY, arm, RETRIEVAL, size, early),
            )
            for method, arm, size in (("YaRN", YARN, 0.0533), ("NTK", NTK, 0.0736))
        ),
        Claim(
            "YaRN on the raised base loses less at twice the trained length",
            *(f"{source}, Table 4", FACTOR, YARN, EARLY, BEYOND, 0.0365),
            of_model=keeps_more_beyond,
            withdrawn="its models retrieve next to nothing there",
        ),
        *(
            Claim(
                f"anchor over {name}, mean of five checkpoints",
                *(table, FACTOR, MEAN_ANCHOR, averaged(name), RETRIEVAL, SIZES[name], mean),
            )
            for name in ("full", "intra", "interleaved")
        ),
        Claim(
            "anchor with domain tags over anchor, mean of five checkpoints",
            *(table, FACTOR, MEAN_TAGGED, MEAN_ANCHOR, RETRIEVAL, 0.0063, mean),
        ),
        *(
            Claim(
                f"anchor over full, {measure.task}, mean of five checkpoints",
                *(f"{source}, Table 7", FACTOR, MEAN_ANCHOR, averaged("full"), measure),
            )
            for measure in (WITHIN, TEXT_WITHIN)
        ),
    ]


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    """A training as in studies/training, half of whose windows hold short documents."""
    began = time.process_time()
    arm = cell.arm
    own = training.Cell(
        cell.subject, cell.factor, training.BASE, arm.steps, layout=arm.layout, short=True
    )
    if arm in THIRD_PART:
        return line_of(cell, samples, of_five_checkpoints(own, arm), time.process_time() - began)
    if arm not in SECOND_PART:
        line = training.measured(own, samples)
        found = {task: value for task, length, value in line["results"] if length == own.target}
        return line_of(cell, samples, asked_for_facts(found), line["seconds"])
    place = RUNS / f"{own.name}-{arm.method}".replace(" ", "_")
    model, plan = None, None
    for method, words in RAISED.items():
        if arm.method == words:
            model, plan = on_raised_base(own, method, place / "raised")
    with attention_in_bfloat16() if arm.method == ROUNDED else nullcontext():
        run = training.trained(own, place / "training", plan, model)
    path = str(run / "model")
    results = asked_for_facts(answers_and_text(path, own.target, samples, TEXT_WINDOWS))
    beyond = answers_and_text(path, 2 * own.target, BEYOND_SAMPLES, 1)
    results.append(retrieved(BEYOND, beyond))
    shutil.rmtree(place)
    return line_of(cell, samples, results, time.process_time() - began)


def of_five_checkpoints(own: training.Cell, arm: Arm) -> list[list[Any]]:
    """The mean over the models of the last steps, at the target and within the window."""
    place = RUNS / f"{own.name}-{arm.method}".replace(" ", "_")
    window = training.SUBJECTS[own.subject].window
    run = training.trained(own, place, tagged=arm.method == TAGGED)
    found = rw.evaluate_checkpoints(
        run / "evaluate",
        methods=["none"],
        lengths=[window, own.target],
        tasks=[*training.TASKS, TEXT],
        samples=BEYOND_SAMPLES,
        mode="generate",
        corpus=read_text().reporting,
        notice=lambda _: None,
    )
    shutil.rmtree(place)
    at_target, within = (
        {
            task: fmean(by_task(each, length)[task] for each in found.evaluated)
            for task in (*training.TASKS, TEXT)
        }
        for length in (own.target, window)
    )
    text = [TEXT_WITHIN.task, TEXT, round(within[TEXT], 5)]
    return [*asked_for_facts(at_target), retrieved(WITHIN, within), text]


def on_raised_base(own: training.Cell, method: str, place: Path) -> tuple[str, ContextPlan]:
    """A copy of the model whose base is that of the other arms, and a method's plan for it."""
    path = training.SUBJECTS[own.subject].path
    raised = rw.plan(path, own.target, "base_change", notice=lambda _: None).plan
    shutil.copytree(BUNDLED_FOLDERS.get(path, path), place, dirs_exist_ok=True)
    file = place / "config.json"
    config = json.loads(file.read_text())
    config["rope_parameters"]["rope_theta"] = raised.steps()[-1].schedule.geometric_base
    file.write_text(json.dumps(config))
    return str(place), rw.plan(place, own.target, method, notice=lambda _: None).plan


@contextmanager
def attention_in_bfloat16() -> Iterator[None]:
    """Rotated queries and keys, and values, are rounded as autocast rounds them; the rest stays in
    float32. Only under a layout, that is, in training."""
    stock = interface.attention

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any
    ) -> tuple[Tensor, None]:
        if kwargs.get("layout") is None:
            return stock(module, query, key, value, mask, **kwargs)
        mixed, _ = stock(module, query.bfloat16(), key.bfloat16(), value.bfloat16(), mask, **kwargs)
        return mixed.to(query.dtype), None

    interface.attention = attention  # type: ignore[assignment]
    try:
        yield
    finally:
        interface.attention = stock


SECOND_PART = [
    *(EARLY, trained("full", FEW_STEPS), rounded("anchor"), rounded("full")),
    *(YARN, NTK, rounded("intra"), rounded("reset"), trained("intra", FEW_STEPS)),
    *(trained("interleaved", FEW_STEPS), EARLY_PLANTED),
]
THIRD_PART = [
    *(MEAN_ANCHOR, averaged("full"), averaged("intra"), averaged("interleaved")),
    *(MEAN_TAGGED, MEAN_PLANTED),
]
STUDY = Study(
    Path(__file__).parent,
    {FACTOR: [ANCHOR, *map(trained, SIZES), PLANTED, *SECOND_PART, *THIRD_PART]},
    claims(),
    (*FIRST, "high base", *MORE),
    measured,
    training.SAMPLES,
    [
        *(
            Cell(name, FACTOR, arm)
            for name in MORE
            for arm in (*SECOND_PART, *THIRD_PART)
            if arm not in (EARLY, EARLY_PLANTED, YARN, NTK)
        ),
        *(
            Cell("high base", FACTOR, arm)
            for arm in (ANCHOR, *map(trained, SIZES), PLANTED, *SECOND_PART)
        ),
    ],
)


if __name__ == "__main__":
    main(STUDY)
