"""LongRoPE's first tokens without interpolation, on a pretrained model under PI at 4 times.

make real; make study NAME=first_tokens_smollm2
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ropewalk as rw
from benchmarks.machine import machine
from benchmarks.text import PACKAGES, read_text
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.scoring import Scorer
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel, load
from studies.claims import TEXT, Arm, Cell, Claim, Measure, Study, main
from studies.power import Effect, Power
from studies.smollm2.model import ready

FACTOR = 4
PLAIN, KEPT, STRETCHED = Arm("linear"), Arm("linear", kept=16), Arm("linear", stretch=1.1)
SLIGHTLY = Arm("linear", stretch=1.03)
"""The second control: the first costs more than the paper's whole effect."""
OF_A_PACKAGE = 5
LENGTH, SCORED = 512, 256
"""Tokens of a text, of which the last are scored: there, order is as it was under every arm."""
NAMES = tuple(
    f"{package} {i}"
    for package in PACKAGES["reporting"]
    for i in range(3 if package == "tokenizers" else OF_A_PACKAGE)  # which has no more files
)
NATS = Measure(TEXT, "nats")
PAPERS = 0.0424
"""Table 2 at 16k, n̂ of 16 and of 0, as in studies/first_tokens."""


@cache
def _model() -> tuple[LoadedModel, dict[str, IntArray]]:
    """The model, and the beginning of the first files of each package."""
    loaded = load(str(ready()), dtype="float32", device="cpu")
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    texts: dict[str, IntArray] = {}
    for package in PACKAGES["reporting"]:
        folder = f"{package}/"
        own = [each for each in read_text().reporting if each.name.startswith(folder)]
        for i, document in enumerate(own[:OF_A_PACKAGE]):
            bos = np.array(encoder.bos, dtype=np.int64)
            tokens = encoder.pieces(document.text)[: LENGTH - len(bos)]
            texts[f"{package} {i}"] = np.concatenate([bos, tokens])
    return loaded, texts


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    """The loss of one text under one arm; a text is one sample."""
    loaded, texts = _model()
    arm, began = cell.arm, time.process_time()
    served = loaded.present_plan.target_length
    planned = rw.plan(
        str(ready()),
        round(arm.stretch * FACTOR * served),
        arm.method,
        kept_initial_positions=arm.kept or None,
        notice=lambda _: None,
    )
    with applied(loaded.model, planned.plan, length=planned.plan.target_length, check=False):
        [scores] = Scorer(loaded.model).score([texts[cell.subject]], [LENGTH - SCORED])
    loss = float(scores.losses.mean())
    return {
        "subject": cell.subject,
        "factor": cell.factor,
        "arm": arm._asdict(),
        "samples": 1,
        "weights": "SmolLM2-135M-Instruct",
        "results": [[TEXT, TEXT, round(float(np.exp(loss)), 5)]],
        "seconds": round(time.process_time() - began, 1),
        "machine": {**machine(), "torch": torch.__version__},
    }


STUDY = Study(
    Path(__file__).parent,
    {FACTOR: [PLAIN, KEPT, STRETCHED, SLIGHTLY]},
    [
        Claim(
            "16 first tokens without interpolation lower the loss under PI, SmolLM2",
            "Ding et al. 2024, Table 2",
            *(FACTOR, KEPT, PLAIN, NATS, PAPERS),
            planted=(PLAIN, SLIGHTLY),
        )
    ],
    NAMES,
    measured,
    1,
    over="texts of one model",
    powers=[
        Power(
            (Effect("the gain, in nats", PAPERS, 0.027),),
            len(PACKAGES["reporting"]),
            "packages",
            "the paper's effect; the spread of 19 texts, taken as that of packages, whose means of "
            "five texts differ less",
        ),
    ],
)


if __name__ == "__main__":
    main(STUDY)
