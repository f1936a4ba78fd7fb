from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ropewalk.chart import Chart
from ropewalk.planning.tables import factors
from ropewalk.reports.figures import figure, save
from ropewalk.scaling import linear, yarn
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.searching.model.charts import progress

PLAIN = RotarySchedule.plain(RotaryGeometry(32, 32, 10_000.0, 512))
SCHEDULES = {"linear": linear.schedule(PLAIN, 2048), "yarn": yarn.schedule(PLAIN, 2048)}
FAR = {"linear": 9.7, "yarn": 3.9, "ntk": float("inf")}
CURVE = progress("Search at 2k", [(100, 4.0), (200, 3.8)], FAR)


def test_curves_hold_the_factors_and_name_an_attention_scaling() -> None:
    chart = factors(SCHEDULES, "Rescale factors", "yarn")
    labels = [(series.label, series.main) for series in chart.series]
    assert labels == [("linear", False), ("yarn (chosen), attention × 1.14", True)]
    drawn = [mark.y for mark in chart.series[1].marks]
    np.testing.assert_array_equal(drawn, SCHEDULES["yarn"].rescale_factors)
    [line] = chart.verticals
    assert line.at == np.argmax(PLAIN.wavelengths > 512)


@pytest.mark.parametrize(
    "chart",
    [
        progress("none", [], {"yarn": 3.0}),
        progress("one", [(1, 2.0)], {}),
        progress("alone", [(1, 2.0)], {"yarn": float("inf")}),
        progress("failed", [(1, float("inf"))], {"yarn": 3.0}),
    ],
)
def test_little_to_draw_is_drawn_too(chart: Chart, tmp_path: Path) -> None:
    save(figure([chart]), tmp_path / "progress.svg")
    assert "tokens scored" in (tmp_path / "progress.svg").read_text()


def test_what_lies_far_above_is_named_and_not_drawn(tmp_path: Path) -> None:
    save(figure([CURVE]), tmp_path / "progress.svg")
    text = (tmp_path / "progress.svg").read_text()
    assert "off the scale: linear, ntk" in text
    [line] = CURVE.horizontals
    assert (line.label, line.at) == ("best hand-designed: yarn", 3.9)
