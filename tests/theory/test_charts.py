from __future__ import annotations

from pathlib import Path

import numpy as np

from docs import theory_charts
from ropewalk.chart import Chart, Mark, Series
from ropewalk.reports.figures import figure, save
from ropewalk.theory import charts


def written(path: Path, *charts: Chart, title: str = "", strips: bool = False) -> str:
    save(figure(charts, title, strips=strips), path / "drawn.svg")
    return (path / "drawn.svg").read_text(encoding="utf-8")


def test_bounds_name_their_curves_and_models(tmp_path: Path) -> None:
    curve = Series("infimum", (Mark(1024, 4e3), Mark(4096, 3e4)))
    models = [("Left", 3900, 1e4), ("Right", 4096, 1e4), ("Same", 4096, 1e4)]
    chart = charts.bounds([curve], models, "heads of 128")
    assert [mark.name for mark in chart.series[-1].marks] == ["Left", "Right, Same"]
    text = written(tmp_path, chart)
    for expected in ("infimum", "Left", "Right, Same", "heads of 128", "4k"):
        assert expected in text


def test_advantages_say_where_they_first_fall_below_zero(tmp_path: Path) -> None:
    distances = np.arange(4096)
    shares = np.cos(distances / 1000)
    strips = (
        theory_charts.advantage("plain", distances, shares, 1571),
        theory_charts.advantage("linear", distances, np.abs(shares), None),
    )
    text = written(tmp_path, *strips, strips=True)
    assert "plain: first below zero at 1,571" in text
    assert "linear: never below zero" in text
    _, below = strips[0].series
    drawn = [mark for mark in below.marks if strips[0].shows(mark)]
    assert [mark.x for mark in drawn] == [
        x for x in range(0, 4096, 4) if shares[x : x + 4].min() < 0
    ]
    assert min(mark.low or 0 for mark in drawn) == shares.min()


def test_angles_show_what_is_new(tmp_path: Path) -> None:
    distances = np.arange(64)
    chart = theory_charts.angles("plain", distances, np.cos(distances), 16, distances > 40)
    counts = {s.label: sum(chart.shows(mark) for mark in s.marks) for s in chart.series}
    assert counts == {
        "longer, but a known angle": 25,
        "longer, and a new angle": 23,
        "in the trained length": 16,
    }
    text = written(tmp_path, chart, title="angles", strips=True)
    assert "angles" in text
    assert "longer, and a new angle" in text
