"""Long context against short text: differences on the same samples, where both were measured."""

from __future__ import annotations

import random

import pytest

from ropewalk.evaluation.charts import by_length
from ropewalk.evaluation.results import compare_methods, summarise
from ropewalk.evaluation.tradeoff import tradeoffs
from ropewalk.records import EvalRecord
from ropewalk.reports.page.svg import chart

ORIGINAL = 512
LOSS = {("none", 512): 3.0, ("yarn", 512): 3.1, ("none", 2048): 5.0, ("yarn", 2048): 3.2}
RIGHT = {("none", 512): 18, ("yarn", 512): 15, ("none", 2048): 0, ("yarn", 2048): 16}


def record(method: str, task: str, metric: str, length: int, n: int, score: float) -> EvalRecord:
    names = (f"{task}-{length}-{n}", f"text {n}")
    return EvalRecord(method, method, "w", task, "teacher_forced", metric, length, *names, score)


def records(tasks: tuple[str, ...] = ("kv", "passkey")) -> list[EvalRecord]:
    noise, found = random.Random(0), []
    for (method, length), loss in LOSS.items():
        for n in range(20):
            score = loss + noise.gauss(0, 0.05)
            found.append(record(method, "perplexity", "nll", length, n, score))
            for task in tasks:
                right = float(n < RIGHT[method, length])
                found.append(record(method, task, "exact_match", length, n, right))
    return found


def test_the_differences_are_those_of_the_comparison_of_methods() -> None:
    found = records()
    losses, answers = tradeoffs(found, ORIGINAL)
    assert losses.title == "perplexity: gain in loss (nats per token)"
    assert answers.title == "all tasks: gain in right answers (points)"
    [series] = losses.series
    assert (series.label, [m.x for m in series.marks]) == ("yarn", [512, 2048])
    for mark in series.marks:
        [told] = [c for c in compare_methods(found)
                  if (c.task, c.length) == ("perplexity", mark.x)]  # fmt: skip
        # The unmodified model's loss minus yarn's.
        assert mark.y == pytest.approx(told.comparison.difference.value)
        assert mark.low == pytest.approx(told.comparison.difference.low)
    [series] = answers.series
    assert [m.y for m in series.marks] == pytest.approx([-0.15, 0.8])
    assert all(m.low is not None and m.low < m.y < (m.high or 0) for m in series.marks)


def test_nothing_is_drawn_where_one_side_was_not_measured() -> None:
    short = [r for r in records() if r.length <= ORIGINAL]
    long = [r for r in records() if r.length > ORIGINAL]
    assert tradeoffs(short, ORIGINAL) == tradeoffs(long, ORIGINAL) == []
    assert tradeoffs([r for r in records() if r.method == "yarn"], ORIGINAL) == []


def test_a_task_that_fits_some_lengths_alone_is_in_no_mean() -> None:
    found = [r for r in records() if (r.task, r.length) != ("passkey", 512)]
    _, answers = tradeoffs(found, ORIGINAL)
    assert answers.title.startswith("kv: ")


def test_a_method_looks_as_in_the_other_charts_and_is_named() -> None:
    found = records()
    both = by_length(summarise(found), ORIGINAL)[0]
    [change, _] = tradeoffs(found, ORIGINAL)
    names = [series.label for series in both.series]
    [series] = change.series
    assert series.look == names.index("yarn") == 1
    assert series.label == "yarn"
    assert 'class="line s1"' in chart(change)
