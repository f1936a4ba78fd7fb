"""A search by the loss of answers beside one by the loss of text, at 8 times the window.

make study NAME=needle_search
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import ropewalk as rw
from benchmarks.text import read_text
from studies.claims import (
    RETRIEVAL,
    Arm,
    Cell,
    Claim,
    Study,
    asked_for_facts,
    by_task,
    evaluated,
    line_of,
    main,
)
from studies.training.cells import SAMPLES, SUBJECTS, TASKS
from studies.training.measure import FIRST, MORE

FACTOR = 8
BY = "search by "
NEEDLE, TEXT, MIXED = (Arm(f"{BY}{name}") for name in ("needle", "perplexity", "mixed"))
BOUNDED = Arm(f"{NEEDLE.method}, beyond the critical pair")
"""Factors of at least the extension's for pairs without a full turn in the trained length."""


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    """The plan that a search ends in, asked for facts on other text."""
    began = time.process_time()
    subject = SUBJECTS[cell.subject]
    target = cell.factor * subject.window
    plan = rw.search(
        subject.path,
        to=target,
        corpus=read_text().tuning,
        objective=cell.arm.method.removeprefix(BY).split(",")[0],
        beyond_critical=cell.arm == BOUNDED,
        notice=lambda _: None,
    ).plan
    found = by_task(evaluated(subject.path, [target], [*TASKS, "perplexity"], samples, plan))
    return line_of(cell, samples, asked_for_facts(found), time.process_time() - began)


STUDY = Study(
    Path(__file__).parent,
    {FACTOR: [NEEDLE, TEXT, MIXED, BOUNDED]},
    [
        Claim(
            "a search by answers finds plans that retrieve more than one by perplexity",
            "Shang et al. 2025 (LongRoPE2)",
            FACTOR,
            NEEDLE,
            TEXT,
            RETRIEVAL,
            0.0335,
        ),
        Claim(
            "a search by answers retrieves more within the bound beyond the critical pair",
            "our question",
            FACTOR,
            BOUNDED,
            NEEDLE,
            RETRIEVAL,
        ),
    ],
    (*FIRST, *MORE),
    measured,
    SAMPLES,
)


if __name__ == "__main__":
    main(STUDY)
