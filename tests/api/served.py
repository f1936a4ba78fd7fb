"""What holds for the bundled model under its plan, whoever serves it: a server, or a file's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.models.config import BUNDLED
from ropewalk.run_directory import ARGUMENTS, CONFIGURATION, RECORDS
from tests.api.conformance import check_result
from tests.evaluation.served import made

LENGTHS = [128, 256]
SAMPLES = 4
KEPT = (RECORDS, "results.json", "run.json")
"""Files of a run that are the same bytes, however often it was cut off."""
UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"mode": "teacher_forced"}, "choose generate, or measure"),
    ({"tasks": ["perplexity"]}, "perplexity needs the probabilities of prompt tokens"),
    ({"tasks": ["needle", "perplexity"]}, "perplexity needs the probabilities of prompt tokens"),
]
"""What no served model is measured by."""
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tasks": ["neddle"]}, r"unknown task 'neddle' \(did you mean 'needle'\?\)"),
    ({"lengths": []}, "lengths = "),
    ({"samples": 0}, "samples = 0"),
]
"""Before anything is asked."""


def without_figures(patch: pytest.MonkeyPatch) -> None:
    """They take seconds."""
    patch.setattr("ropewalk.reports.figures.save_pictures", lambda *_: None)


def check_scores(found: Evaluated, tasks: Sequence[str]) -> None:
    """They are those of the model in process, on the same samples."""
    check_result(found)
    here = rw.evaluate(
        BUNDLED,
        plans=[made.plan()],
        tasks=tasks,
        lengths=LENGTHS,
        samples=SAMPLES,
        mode="generate",
        dtype="float32",
        device="cpu",
    )
    own = {(r.task, r.length): r.value for r in here.results if r.metric == "task_score"}
    assert {(r.task, r.length): r.value for r in found.results} == own
    assert len(own) == len(tasks) * len(LENGTHS)


def check_same_bytes(run: Path, whole: Path, kept: Sequence[str] = KEPT) -> None:
    """A run that was cut off is as one that was not."""
    for name in kept:
        one, two = ((each / name).read_bytes() for each in (run, whole))
        if name == CONFIGURATION:  # a plan as a value and as a file are two arguments
            both = [json.loads(content) for content in (one, two)]
            one, two = (json.dumps({**each, ARGUMENTS: None}).encode() for each in both)
        assert one == two
