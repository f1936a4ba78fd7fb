"""From journalled numbers to estimates and sentences."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.number_formats.results import Precision, SequenceMean, summarise, times

LENGTHS = (3, 6, 12)


def record(
    sequence: int, scale: float = 1.0, power: float = 0.5, arm: str = "bf16"
) -> dict[str, Any]:
    point = {
        "first": 0,
        "second": 16,
        "lengths": list(LENGTHS),
        "attention": [scale / 4, scale / 2, scale],
        "logit": [scale * n**power for n in LENGTHS],
        "losses": [2.0 + scale / 100, 2.0],
    }
    return {"arm": arm, "sequence": sequence, "points": [point, {**point, "first": 50}]}


def found(*records: dict[str, Any]) -> Precision:
    return Precision("m", 12, 16, len(records), "cpu", summarise(records), ())


def test_estimates_are_means_over_sequences() -> None:
    [arm] = summarise([record(0, 1.0), record(1, 3.0)])
    assert arm.strays == SequenceMean(2, None, None), "two sequences give no interval"
    assert [point.first for point in arm.curve] == [0, 50]
    assert list(arm.by_sequence) == [1, 3]
    assert arm.attention_by_length[0].value.mean == pytest.approx(0.5)
    assert arm.growth is not None
    assert arm.growth.mean == pytest.approx(0.5)
    assert arm.loss_change.mean == pytest.approx(0.02)


def test_a_ratio_of_two_arms_is_paired_by_sequence() -> None:
    scales = (1.0, 2.0, 4.0, 8.0, 16.0)
    ours, theirs = (
        summarise([record(i, scale / by) for i, scale in enumerate(scales)])[0] for by in (1, 3)
    )
    assert times(ours.by_sequence, theirs.by_sequence) == pytest.approx((3, 3, 3))
    assert times(ours.by_sequence, [0.0] * 5) is None


@pytest.mark.parametrize(
    ("power", "word"),
    [(1.0, "grows"), (0.0, "neither grows nor falls"), (0.05, "grows"), (-1.0, "falls")],
)
def test_the_verdict_says_how_it_grows_with_length(power: float, word: str) -> None:
    own = found(*(record(i, 1 + i, power) for i in range(5)))
    [line] = [line for line in own.verdict if "logit difference" in line]
    assert f"logit difference {word}" in line


def test_no_sentence_compares_without_an_interval() -> None:
    """Five sequences or more, or the sentence says that it does not judge."""
    [line] = [line for line in found(*map(record, range(4))).verdict if "logit difference" in line]
    assert "is not judged from fewer than 5 sequences" in line


def test_the_verdict_speaks_of_bf16_next_to_fp32() -> None:
    both = found(*(record(i, arm=arm) for arm in ("fp32", "bf16") for i in range(5)))
    assert both.verdict[0].startswith("bf16: a shift by 16 changes attention by D = 1 (1 to 1)")
    assert both.verdict[0].endswith("1 (1 to 1) times fp32")
    alone = found(*(record(i, arm="fp16") for i in range(5)))
    assert alone.verdict[0].startswith("fp16: ")
    assert "times" not in alone.verdict[0]
