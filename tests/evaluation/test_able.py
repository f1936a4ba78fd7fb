"""`--tasks auto`: what a model fails within its window is not asked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.errors import InputError, UnknownName
from ropewalk.evaluation.able import LEAST, SAMPLES
from ropewalk.evaluation.runner import Evaluation
from ropewalk.records import EvalRecord
from ropewalk.run_directory import CONFIGURATION, RECORDS, read_journal
from tests.evaluation import tiny


def test_the_bundled_model_is_asked_what_it_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    seeds: list[int] = []
    run, plain = tmp_path / "run", Evaluation.run

    def watched(self: Evaluation, *given: Any, **named: Any) -> list[EvalRecord]:
        seeds.append(self.settings.seed)
        return plain(self, *given, **named)

    monkeypatch.setattr(Evaluation, "run", watched)
    found = rw.evaluate(
        "bundled",
        tasks=["auto"],
        methods=["none", "yarn"],
        to="1k",
        lengths=["1k", "256"],
        samples=2,
        run=run,
        notice=told.append,
    )
    assert seeds == [2**40, 0], "what chooses is never what scores"
    asked = set(json.loads((run / CONFIGURATION).read_text())["configuration"]["tasks"])
    assert {"passkey", "needle"} <= asked
    [line] = [
        line for line in told if line.startswith("left out, since the model answers fewer than")
    ]
    failed = {name: int(rate) for name, rate in re.findall(r"([\w-]+) \((\d+)%\)", line)}
    assert "mrcr-8-syn" in failed
    assert max(failed.values()) < 100 * LEAST
    assert not failed.keys() & asked
    assert {result.task for result in found.results} <= asked
    # The same model on the same other samples fails these tasks, and does the others.
    named = rw.evaluate(
        "bundled", tasks=sorted(asked), lengths=["256"], samples=SAMPLES, seed=2**40
    )
    rates = {r.task: r.value for r in named.results if r.metric == "exact_match"}
    assert min(rates.values()) >= LEAST
    chosen = {line["sample"] for line in read_journal(run / RECORDS)}
    assert len(chosen) >= 2 * len(asked)


def test_a_model_that_can_do_nothing_is_told() -> None:
    with pytest.raises(InputError, match="can do no task at 128"):
        rw.evaluate(tiny.loaded(), tasks=["auto"], lengths=[512], corpus=tiny.documents())


def test_auto_stands_alone() -> None:
    with pytest.raises(UnknownName, match="auto"):
        rw.evaluate(tiny.loaded(), tasks=["auto", "kv"], lengths=[512], corpus=tiny.documents())
