"""Su 2023 on mixed bases and log n, at 8 times the window, without training or pre-trained with it.

make study NAME=log_n
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.models.config import present_plan
from ropewalk.models.install import install
from ropewalk.models.load import load
from ropewalk.schedule import LogN
from studies import claims as common
from studies.bundled_model.model import SIZES, Size, new_model
from studies.bundled_model.train import finished, train_stages
from studies.claims import (
    MODELS,
    REPEATED,
    TEXT,
    Arm,
    Cell,
    Claim,
    Measure,
    Study,
    evaluated,
    line_of,
    main,
)
from studies.training.cells import SUBJECTS

FACTOR = 8
TEXTS = {TEXT: "other text", REPEATED: "repeated text"}
ACCURACY: Final = "next_token_accuracy"
NONE, LINEAR, NTK, FIXED, MIXED = PLAIN = [
    Arm(method) for method in ("none", "linear", "ntk", "ntk_fixed", "ntk_mixed")
]
FURTHER = Arm("ntk_mixed", stretch=1.1)
"""Planted: a schedule that is stretched a tenth more than needed."""
RUNS = Path("runs/log_n")
WITH_IT = ", pre-trained with log n"
PRETRAINED = {arm: Arm(arm.method + WITH_IT) for arm in (NONE, FIXED, MIXED)}
SMALLER = ("tall", "wide", "narrow", "high base", "low base")
"""One model of each size with a window of 128."""
WINDOWS = (480, 24)
"""Of text within the window, and, for models that are pre-trained with log n, beyond it."""
EQUAL = 0.005
"""Share of tokens: as much less counts as none."""


def pretrained_claims() -> list[Claim]:
    """Table 1."""
    source, accuracy = "Su 2023, Table 1", Measure(TEXT, ACCURACY)
    planted = PRETRAINED[FIXED], PRETRAINED[NONE]
    return [
        *(
            Claim(
                f"log n in pre-training helps {name}, {TEXTS[TEXT]}",
                *(source, FACTOR, PRETRAINED[arm], arm, accuracy, size, planted),
            )
            for name, arm, size in (("NTK-fixed", FIXED, 0.0453), ("NTK-mixed", MIXED, 0.0529))
        ),
        Claim(
            "log n in pre-training costs less than half a point within the window",
            *(source, 1, PRETRAINED[NONE], NONE, accuracy),
            margin=EQUAL,
        ),
    ]


def claims() -> list[Claim]:
    """Tables 1 and 2; the paper's accuracies of repeated and of other text."""
    of = (
        ("NTK-fixed over NTK", FIXED, NTK, 0.0058, 0.0034),
        ("NTK-mixed over NTK-fixed", MIXED, FIXED, 0.0123, 0.0051),
        (
            "log n beyond the window helps NTK-fixed",
            FIXED._replace(log_n=True),
            FIXED,
            0.0408,
            0.0150,
        ),
        (
            "log n beyond the window helps NTK-mixed",
            MIXED._replace(log_n=True),
            MIXED,
            0.0602,
            0.0226,
        ),
    )
    return [
        Claim(
            f"{words}, {TEXTS[task]}",
            "Su 2023, Tables 1 and 2",
            FACTOR,
            better,
            worse,
            Measure(task, ACCURACY),
            repeated if task == REPEATED else other,
            (MIXED, FURTHER),
            withdrawn="Su's baseline is ntk_old, his eq. 3" if worse is NTK else "",
        )
        for words, better, worse, repeated, other in of
        for task in (TEXT, REPEATED)
    ]


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    with_it = cell.arm in PRETRAINED.values()
    if cell.factor > 1 and not with_it:
        return common.measured(cell, samples)
    began = time.process_time()
    path = trained_with_log_n(cell.subject) if with_it else SUBJECTS[cell.subject].path
    target = cell.factor * SUBJECTS[cell.subject].window
    method = cell.arm.method.removesuffix(WITH_IT)
    plan = None
    if with_it and method == NONE.method:
        plan = with_log_n(load(path).present_plan, target)
    elif with_it:
        plan = rw.plan(path, target, method, log_n="everywhere", notice=lambda _: None).plan
    windows = min(samples * 20, WINDOWS[cell.factor > 1])
    found = evaluated(path, [target], [TEXT], windows, plan)
    results = [[row.task, row.metric, round(row.value, 5)] for row in found.results]
    return line_of(cell, samples, results, time.process_time() - began, path)


def with_log_n(plan: ContextPlan, target: int) -> ContextPlan:
    """The model as it is, up to the target, with queries scaled by log n at every position."""
    trained = plan.steps()[-1].schedule.geometry.original_length
    return common.reaching(plan, target, log_n=LogN("everywhere", trained))


def trained_with_log_n(name: str) -> str:
    """The folder of the model, trained where it is not there. Its files do not say that queries
    are scaled: a plan does."""
    subject = SUBJECTS[name]
    place = RUNS / subject.size
    if not finished(place, subject.seed).exists():
        train_stages(SIZES[subject.size], subject.seed, place, scaled_model, gives_up=False)
    return str(finished(place, subject.seed))


def scaled_model(tokenizer: PreTrainedTokenizerFast, seed: int, size: Size) -> LlamaForCausalLM:
    model = new_model(tokenizer, seed, size)
    install(model, with_log_n(present_plan(model.config), size.window))
    return model


STUDY = Study(
    Path(__file__).parent,
    {
        FACTOR: [
            *PLAIN,
            *(arm._replace(log_n=True) for arm in PLAIN[1:]),
            FURTHER,
            *PRETRAINED.values(),
        ],
        1: [NONE, PRETRAINED[NONE]],
    },
    [*claims(), *pretrained_claims()],
    measured=measured,
    left_out=[
        Cell(name, factor, arm)
        for name in MODELS
        if name not in SMALLER
        for factor, arms in ((FACTOR, PRETRAINED.values()), (1, (NONE, PRETRAINED[NONE])))
        for arm in arms
    ],
)


if __name__ == "__main__":
    main(STUDY)
