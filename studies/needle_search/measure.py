"""A search by the loss of answers beside one by the loss of text, at 8 times the window.

make study NAME=needle_search
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import ropewalk as rw
from benchmarks.text import read_text
from docs.figures import Picture
from studies.claims import Arm, Cell, Claim, Measure, Study, line_of, main, picture, table
from studies.training.cells import SAMPLES, SUBJECTS, TASKS
from studies.training.measure import FIRST, MORE

FACTOR = 8
BY = "search by "
RETRIEVAL = Measure("retrieval", "exact_match")
NEEDLE, TEXT, MIXED = (Arm(f"{BY}{name}") for name in ("needle", "perplexity", "mixed"))


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    """The plan that a search ends in, asked for facts on other text."""
    began = time.process_time()
    subject, text = SUBJECTS[cell.subject], read_text()
    target = cell.factor * subject.window
    found = rw.search(
        subject.path,
        to=target,
        corpus=text.tuning,
        objective=cell.arm.method.removeprefix(BY),
        notice=lambda _: None,
    )
    asked = rw.evaluate(
        subject.path,
        plans=[found.plan],
        lengths=[target],
        tasks=[*TASKS, "perplexity"],
        samples=samples,
        mode="generate",
        corpus=text.reporting,
        notice=lambda _: None,
    )
    values = {row.task: row.value for row in asked.results if row.metric == RETRIEVAL.metric}
    perplexity = next(row.value for row in asked.results if row.metric == "perplexity")
    results = [
        *([task, RETRIEVAL.metric, round(values[task], 4)] for task in TASKS),
        [*RETRIEVAL, round(sum(values[task] for task in TASKS) / len(TASKS), 5)],
        ["perplexity", "perplexity", round(perplexity, 5)],
    ]
    return line_of(cell, samples, results, time.process_time() - began)


STUDY = Study(
    Path(__file__).parent,
    {FACTOR: [NEEDLE, TEXT, MIXED]},
    [
        Claim(
            "a search by answers finds plans that retrieve more than one by perplexity",
            "Shang et al. 2025 (LongRoPE2)",
            FACTOR,
            NEEDLE,
            TEXT,
            RETRIEVAL,
            0.0335,
        )
    ],
    (*FIRST, *MORE),
    measured,
    SAMPLES,
)


def blocks() -> dict[str, str]:
    return {"studies/needle_search/README.md": table(STUDY)}


def pictures() -> dict[str, Picture]:
    return {"studies/needle_search/claims.png": picture(STUDY)}


if __name__ == "__main__":
    main(STUDY)
