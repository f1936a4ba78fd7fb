"""Blocks of an evaluation: each value under the name that it belongs to."""

from __future__ import annotations

from ropewalk.evaluation.results import MethodComparison
from ropewalk.evaluation.statistics import PairedComparison
from ropewalk.evaluation.tables import compared
from ropewalk.interval import Interval
from ropewalk.records import Subject

YARN, LINEAR = Subject("w", "p", "yarn"), Subject("w", "q", "linear")


def test_a_comparison_says_what_the_first_gains() -> None:
    better = PairedComparison(20, Interval(0.25, 0.125, 0.375, "difference"), 0.001)
    few = PairedComparison(3, Interval(-0.5, None, None, "difference"), None)
    table = compared(
        [
            MethodComparison("kv", "generate", "exact_match", 256, YARN, LINEAR, better, 0.002),
            MethodComparison("perplexity", "generate", "nll", 512, LINEAR, YARN, few, None),
        ],
        "caption",
    )
    assert table.columns[2:5] == ("first", "second", "gain of the first")
    first, second = [[cell.text for cell in row] for row in table.rows]
    assert first[:5] == ["kv", "256", "yarn", "linear", "+25.0 (+12.5 to +37.5) points"]
    assert second[:5] == [
        *("perplexity (loss)", "512", "linear", "yarn", "+0.500 nats (too few samples)")
    ]
    assert [row[4].key for row in table.rows] == [0.25, 0.5], "a lower loss is a gain"
    unmodified = YARN._replace(method="none")
    worse = PairedComparison(20, Interval(-0.25, -0.375, -0.125, "difference"), 0.001)
    own = MethodComparison("kv", "generate", "exact_match", 256, unmodified, YARN, worse, 0.002)
    [row] = compared([own], "caption").rows
    told = [cell.text for cell in row[2:5]]
    assert told == ["yarn", "unmodified", "+25.0 (+12.5 to +37.5) points"]
