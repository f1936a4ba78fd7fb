"""Models trained from nothing with fewer rotated pairs, or with a base below the bound.

make study NAME=pretrained
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import ropewalk as rw
from ropewalk.models.load import load
from studies.bundled_model.model import SIZES, Size, new_model
from studies.bundled_model.train import finished, train_stages
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
    line_of,
    main,
    reaching,
)
from studies.training import cells as training
from studies.training.cells import SAMPLES, SUBJECTS

RUNS = Path("runs/pretrained")
BEYOND = 4
MODELS = ("tall", "wide", "narrow", "low base", "high base", "tall 2", "tall 3", "bundled")
ALL, HALF, QUARTER = Arm("all pairs"), Arm("half of the pairs"), Arm("a quarter of the pairs")
LOW = Arm("base 100")
ROTATED = {HALF.method: 1 / 2, QUARTER.method: 1 / 4}
LONGER, STEPS = 8, 50
"""Windows of a second training, at a longer length, and its steps."""
AFTER = {arm: Arm(arm.method, steps=STEPS) for arm in (ALL, HALF)}
RAISED = {arm: Arm(f"{arm.method}, larger base", steps=STEPS) for arm in (ALL, HALF)}
NO_WORSE = 0.05
"""Share of answers."""
NATS = Measure(TEXT, "nats")
WINDOWS = 12
"""Windows of text for each sample of a task: differences of text are small."""
NEGLIGIBLE = 0.03
"""Nats per token, as in studies/base."""
SU, MEN, OURS = "Su 2024, partial rotation", "Men et al. 2024, Fig. 7", "our question"


def gains_less(known: Known, name: str) -> float | None:
    """The gain of the larger base when all pairs rotate, less the gain when half of them do."""
    cells = [Cell(name, LONGER, arm) for kind in (ALL, HALF) for arm in (RAISED[kind], AFTER[kind])]
    if any(cell not in known for cell in cells):
        return None
    of_all, without, of_half, own = (known[cell][RETRIEVAL] for cell in cells)
    return (of_all - without) - (of_half - own)


def claims() -> list[Claim]:
    found = []
    for arm, words in ((HALF, "half of the pairs"), (QUARTER, "a quarter of the pairs")):
        found += [
            Claim(f"{words} over all, text within the window", SU, 1, arm, ALL, NATS),
            Claim(f"{words} over all, text beyond", OURS, BEYOND, arm, ALL, NATS),
            Claim(f"{words} over all, retrieval beyond", OURS, BEYOND, arm, ALL, RETRIEVAL),
        ]
    return [
        *found,
        Claim("the usual base over 100, within the window", MEN, 1, ALL, LOW, RETRIEVAL),
        Claim(
            f"base 100 costs text less than {NEGLIGIBLE} nats",
            MEN,
            1,
            LOW,
            ALL,
            NATS,
            margin=NEGLIGIBLE,
        ),
        Claim(
            "all pairs need a larger base, after training",
            *(SU, LONGER, RAISED[ALL], AFTER[ALL], RETRIEVAL),
        ),
        Claim(
            "half of the pairs need no larger base, after training",
            *(SU, LONGER, AFTER[HALF], RAISED[HALF], RETRIEVAL),
            margin=NO_WORSE,
        ),
        Claim(
            "a larger base gains more with all pairs than with half of them",
            *(SU, LONGER, RAISED[ALL], RAISED[HALF], RETRIEVAL),
            of_model=gains_less,
        ),
    ]


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    began = time.process_time()
    window, longer = SUBJECTS[cell.subject].window, None
    if not cell.arm.steps:
        path = trained(cell)
        found = answers_and_text(path, cell.factor * window, samples, WINDOWS * samples)
    else:
        path, longer = trained_longer(cell)
        found = answers_and_text(str(longer / "model"), cell.factor * window, samples, samples)
    seconds = time.process_time() - began
    if longer is not None:
        shutil.rmtree(longer.parent)
    return line_of(cell, samples, asked_for_facts(found), seconds, path)


def trained_longer(cell: Cell) -> tuple[str, Path]:
    """The model before and the run of its training at a longer length, with its base or with a
    larger one: by which the turning pairs turn as in a head of their number with the safe base."""
    (kind,) = (each for each in AFTER if cell.arm in (AFTER[each], RAISED[each]))
    path = trained(cell._replace(arm=kind))
    asked = training.Cell(cell.subject, cell.factor, training.BASE, cell.arm.steps)
    plan = reaching(load(path).present_plan, asked.target)
    if cell.arm == RAISED[kind]:
        safe = training.plan_of(asked).longest().geometric_base
        assert safe is not None, "a base change leaves the frequencies geometric"
        base = safe ** (1 / ROTATED.get(kind.method, 1))
        planned = rw.plan(
            path, asked.target, "base_change", parameters={"base": base}, notice=lambda _: None
        )
        plan = planned.plan
    place = RUNS / f"{asked.name}-{cell.arm.method}".replace(" ", "_")
    return path, training.trained(asked, place, plan, path)


def trained(cell: Cell) -> str:
    """The folder of the model, which is trained where it is not there; what was killed goes on."""
    subject, method = SUBJECTS[cell.subject], cell.arm.method
    if method == ALL.method:
        return subject.path
    place = RUNS / f"{subject.size}-{method.replace(' ', '_')}"
    if not finished(place, subject.seed).exists():
        size = SIZES[subject.size]
        if method == LOW.method:
            train_stages(replace(size, base=100.0), subject.seed, place, gives_up=False)
        else:
            share = ROTATED[method]

            def new(tokenizer: PreTrainedTokenizerFast, seed: int, of: Size) -> LlamaForCausalLM:
                return partly_rotated(tokenizer, seed, of, share)

            train_stages(size, subject.seed, place, new, gives_up=False)
    return str(finished(place, subject.seed))


def partly_rotated(
    tokenizer: PreTrainedTokenizerFast, seed: int, size: Size, share: float
) -> LlamaForCausalLM:
    """The first pairs turn as in a head of that share of the size; the others rest."""
    base = size.base ** (1 / share)
    model = new_model(tokenizer, seed, replace(size, base=base))
    model.config.rope_parameters = {
        "rope_type": "proportional",
        "rope_theta": base,
        "partial_rotary_factor": share,
    }
    model.model.rotary_emb = LlamaRotaryEmbedding(model.config)
    return model


STUDY = Study(
    Path(__file__).parent,
    {
        1: [ALL, HALF, QUARTER, LOW],
        BEYOND: [ALL, HALF, QUARTER],
        LONGER: [*AFTER.values(), *RAISED.values()],
    },
    claims(),
    MODELS,
    measured,
    SAMPLES,
    # The size of `high base` with another base is `narrow`: it would be the same model again.
    # `bundled` is there for base 100 alone.
    [
        Cell("high base", 1, LOW),
        *(Cell("bundled", factor, arm) for factor in (1, BEYOND) for arm in (HALF, QUARTER)),
        Cell("bundled", BEYOND, ALL),
        *(
            Cell(name, LONGER, arm)
            for name in ("tall 2", "tall 3", "bundled")
            for arm in (*AFTER.values(), *RAISED.values())
        ),
    ],
)


if __name__ == "__main__":
    main(STUDY)
