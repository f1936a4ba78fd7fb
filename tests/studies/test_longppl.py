"""The study of LongPPL: the share of ordered pairs, and cells that are not run again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from studies.longppl import measure
from studies.longppl.measure import Found, ordered, page, resampled, verdict
from studies.longppl.power import simulated

# One model, three methods, two texts: perplexity orders one pair of two, LongPPL both.
ALL, KEY = [[20, 22], [10, 14], [30, 30]], [[1, 2], [3, 4], [9, 6]]
SMALL = Found(
    ["a", "b", "c"],
    np.array([[10, 2], [10, 4]]),
    np.stack([np.array(ALL), np.array(KEY)], axis=-1)[None].astype(float),
    [(0, 1), (1, 2)],
)


def test_the_share_of_pairs_that_a_loss_orders_as_retrieval_does() -> None:
    assert ordered(SMALL, np.array([[0, 1], [0, 0]])).tolist() == [[0.5, 1], [0.5, 1]]
    again = resampled(SMALL, 50)
    assert again.shape == (50, 2)
    assert (again == [0.5, 1]).all()


def test_a_planted_gain_is_seen_by_the_rule() -> None:
    rows = np.zeros((1, 3, 8, 3))
    rows[..., 0] = np.array([[3.0], [2.9], [3.1]]) + np.arange(8) / 100
    rows[..., 2] = np.array([[0.9], [0.5], [0.1]])
    drawn = simulated(2, rows, SMALL.right, 1.0, np.random.default_rng(0))
    low, high = np.quantile(np.diff(resampled(drawn, 100)), [0.025, 0.975])
    assert verdict(low, high) == "seen"
    assert verdict(-1, 1) == "undecided"
    assert verdict(-1, -0.5) == "contradicted"


def test_a_finished_cell_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "CELLS", tmp_path / "cells.jsonl")
    assert page() == "Not measured yet."
    for value in (1, 2):
        measure._once({"keys": [2, 0]}, lambda value=value: {"places": [value]})
    [line] = (tmp_path / "cells.jsonl").read_text().splitlines()
    assert json.loads(line)["places"] == [1]
