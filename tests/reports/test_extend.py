from __future__ import annotations

import math

import pytest

from ropewalk.records import EvalRecord
from ropewalk.reports.extend import lines


def record(
    method: str, task: str, metric: str, length: int, sample: int, score: float
) -> EvalRecord:
    name = f"{sample}"
    return EvalRecord(
        method=method,
        plan_id=f"plan of {method}",
        weights="weights",
        task=task,
        mode="teacher_forced",
        metric=metric,
        length=length,
        sample=name,
        layout=name,
        score=score,
    )


RECORDS = [
    record(method, task, metric, length, sample, score)
    for method, right in (("none", 1), ("yarn", 3))
    for length in (128, 256)
    for task, metric, score in (
        *((task, "exact_match", 1.0) for task in ("needle", "kv")),
        ("perplexity", "nll", 2.0),
    )
    for sample in range(4)
    for score in ([score if metric == "nll" else float(sample < right)])
]


def test_tasks_are_pooled_by_method_and_length() -> None:
    shown = {line.method: line.bars for line in lines(RECORDS, "exact_match")}
    assert [bar.length for bar in shown["none"]] == [128, 256]
    assert [bar.value for bar in shown["none"]] == [0.25, 0.25]
    assert [bar.value for bar in shown["yarn"]] == [0.75, 0.75]
    low, high = shown["yarn"][0].low, shown["yarn"][0].high
    assert low is not None
    assert high is not None
    assert 0.3 < low < 0.75 < high < 1  # of eight samples, not of four


def test_losses_are_shown_as_perplexity() -> None:
    (line, _) = lines(RECORDS, "nll")
    assert line.bars[0].value == pytest.approx(math.exp(2.0))
