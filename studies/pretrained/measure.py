"""Models trained from nothing with fewer rotated pairs, or with a base below the bound.

make study NAME=pretrained
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from studies.bundled_model.model import SIZES, Size, new_model
from studies.bundled_model.train import finished, train_stages
from studies.claims import (
    RETRIEVAL,
    TEXT,
    Arm,
    Cell,
    Claim,
    Measure,
    Study,
    answers_and_text,
    asked_for_facts,
    line_of,
    main,
)
from studies.training.cells import SAMPLES, SUBJECTS

RUNS = Path("runs/pretrained")
BEYOND = 4
MODELS = ("tall", "wide", "narrow", "low base", "high base", "tall 2", "tall 3", "bundled")
ALL, HALF, QUARTER = Arm("all pairs"), Arm("half of the pairs"), Arm("a quarter of the pairs")
LOW = Arm("base 100")
ROTATED = {HALF.method: 1 / 2, QUARTER.method: 1 / 4}
NATS = Measure(TEXT, "nats")
WINDOWS = 12
"""Windows of text for each sample of a task: differences of text are small."""
NEGLIGIBLE = 0.03
"""Nats per token, as in studies/base."""
SU, MEN, OURS = "Su 2024, partial rotation", "Men et al. 2024, Fig. 7", "our question"


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
    ]


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    began = time.process_time()
    path, window = trained(cell), SUBJECTS[cell.subject].window
    found = answers_and_text(path, cell.factor * window, samples, WINDOWS * samples)
    seconds = time.process_time() - began
    return line_of(cell, samples, asked_for_facts(found), seconds, path)


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
    {1: [ALL, HALF, QUARTER, LOW], BEYOND: [ALL, HALF, QUARTER]},
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
    ],
)


if __name__ == "__main__":
    main(STUDY)
