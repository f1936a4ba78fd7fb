from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ropewalk.evaluation.charts import by_length, by_position, depth_grids, pictures
from ropewalk.evaluation.effective_length import effective_lengths
from ropewalk.evaluation.results import means, summarise
from ropewalk.evaluation.statistics import wilson
from ropewalk.records import EvalRecord
from ropewalk.reports.figures import figure, save_pictures


def _needle(method: str, length: int, index: int, count: int, score: float) -> EvalRecord:
    return EvalRecord(
        method=method,
        plan_id=method,
        weights="weights",
        task="needle",
        mode="teacher_forced",
        metric="exact_match",
        length=length,
        sample=f"{length}-{index}",
        layout=f"{length}-{index}",
        score=score,
        depth=index / count,
    )


def _records(count: int = 40) -> list[EvalRecord]:
    """`yarn` finds everything, `none` only what stands in the second half of 256 tokens."""
    needles = [
        _needle(method, length, i, count, float(method == "yarn" or i >= count // 2))
        for method in ("none", "yarn")
        for length in (128, 256)
        for i in range(count)
    ]
    losses = [
        replace(
            _needle(method, 256, i, count, 0.0),
            score=2.0 + i / 100,
            task="perplexity",
            metric="nll",
            depth=None,
            positions=positions,
        )
        for method in ("none", "yarn")
        for i in range(3)
        for positions in (None, (1, 64), (64, 256))
    ]
    return needles + losses


def test_a_panel_a_task_and_a_curve_a_method() -> None:
    shown = by_length(summarise(_records()), 128)
    assert [chart.title for chart in shown] == ["needle: answered exactly", "perplexity"]
    assert [series.label for series in shown[0].series] == ["unmodified", "yarn"]
    assert [(mark.x, mark.y) for mark in shown[0].series[0].marks] == [(128, 0.5), (256, 0.5)]
    assert [(line.at, line.label) for line in shown[0].verticals] == [(128, "original length")]
    assert [chart.y.scale for chart in shown] == ["linear", "log10"]


def test_the_panel_of_a_mean_has_its_thresholds() -> None:
    needles = [r for r in _records() if r.task == "needle"]
    records = [*needles, *(replace(r, task="kv", sample=f"kv {r.sample}") for r in needles)]
    groups = {"both": ("needle", "kv")}
    effective = effective_lengths(records, groups, needles[0].subject, 128)
    [chart] = by_length(means(records, groups), effective=effective)
    assert chart.title.startswith("both: ")
    assert chart.horizontals == ((0.425, "85% of its own"),)
    [charts] = pictures(means(records, groups), (), effective=effective).values()
    shown = figure(charts)
    assert [text.get_text() for text in shown.axes[0].texts] == ["85% of its own"]


def test_a_grid_has_enough_samples_in_every_cell() -> None:
    none, yarn = depth_grids(_records(40), "needle")
    assert len(none.rows) == 4
    assert none.edges == [0, 0.25, 0.5, 0.75, 1]
    assert [[cell and cell.rate.value for cell in row] for row in none.rows] == [
        [0, 0],
        [0, 0],
        [1, 1],
        [1, 1],
    ]
    cell = yarn.rows[0][0]
    assert cell is not None
    assert (cell.right, cell.total) == (10, 10)
    assert (cell.rate.low, cell.rate.high) == wilson(10, 10)


@pytest.mark.parametrize(("count", "rows"), [(4, 1), (20, 2), (500, 10)])
def test_few_samples_make_few_rows(count: int, rows: int) -> None:
    assert len(depth_grids(_records(count), "needle")[0].rows) == rows


def test_a_cell_that_says_nothing_yet_is_vague() -> None:
    [_, yarn] = depth_grids(_records(4), "needle")
    [cell, _] = yarn.rows[0]
    assert cell is not None
    assert cell.is_vague
    [_, yarn] = depth_grids(_records(40), "needle")
    assert not any(cell is None or cell.is_vague for row in yarn.rows for cell in row)


def test_perplexity_by_position() -> None:
    [chart] = by_position(_records())
    none, yarn = chart.series
    assert [mark.x for mark in none.marks] == [mark.x for mark in yarn.marks] == [64, 256]
    assert none.marks[0].y == pytest.approx(2.718281828 ** (2.01))


def test_every_picture_is_drawn_twice_with_the_same_bytes(tmp_path: Path) -> None:
    records = _records()
    for folder in ("first", "second"):
        for name, charts in pictures(summarise(records), records).items():
            save_pictures(figure(charts), tmp_path / folder / name)
    first, second = (sorted((tmp_path / folder).iterdir()) for folder in ("first", "second"))
    assert [path.name for path in first] == [
        "by-length.png",
        "by-length.svg",
        "needle-by-depth.png",
        "needle-by-depth.svg",
        "perplexity-by-position.png",
        "perplexity-by-position.svg",
    ]
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_two_checkpoints_under_one_plan_are_two_curves() -> None:
    trained = [replace(record, weights="trained") for record in _records()]
    both = [*_records(), *trained]
    names = ["unmodified (weight)", "yarn (weight)", "unmodified (traine)", "yarn (traine)"]
    assert [series.label for series in by_length(summarise(both))[0].series] == names
    assert [grid.method for grid in depth_grids(both, "needle")] == names
    assert [series.label for series in by_position(both)[0].series] == names


def test_nothing_measured_draws_nothing() -> None:
    assert pictures([], []) == {}
