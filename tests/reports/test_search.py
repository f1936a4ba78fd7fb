from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ropewalk.reports.figures import save, save_pictures
from ropewalk.reports.schedules import factors_figure
from ropewalk.reports.search import SearchCurve, factors_by_label, progress_figure
from ropewalk.scaling import linear, yarn
from ropewalk.schedule import RotaryGeometry, RotarySchedule

PLAIN = RotarySchedule.plain(RotaryGeometry(32, 32, 10_000.0, 512))
SCHEDULES = {"linear": linear.schedule(PLAIN, 2048), "yarn": yarn.schedule(PLAIN, 2048)}
CURVE = SearchCurve([100, 200], [4.0, 3.8], {"linear": 9.7, "yarn": 3.9, "ntk": float("inf")})


def test_curves_hold_the_factors_and_name_an_attention_scaling() -> None:
    linear_curve, yarn_curve = factors_by_label(SCHEDULES)
    assert linear_curve.label == "linear"
    assert yarn_curve.label == "yarn, m = 1.14"
    np.testing.assert_array_equal(yarn_curve.factors, SCHEDULES["yarn"].rescale_factors)
    assert linear_curve.unturned_from == np.argmax(PLAIN.wavelengths > 512)


def test_every_figure_is_drawn_and_the_same_values_give_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        factors = factors_figure(factors_by_label(SCHEDULES))
        save_pictures(factors, tmp_path / folder / "2k-factors")
        save_pictures(progress_figure(CURVE), tmp_path / folder / "2k-progress")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    expected = [f"2k-{n}.{e}" for n in ("factors", "progress") for e in ("png", "svg")]
    assert names == expected
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    "curve",
    [
        SearchCurve([], [], {"yarn": 3.0}),
        SearchCurve([1], [2.0], {}),
        SearchCurve([1], [2.0], {"yarn": float("inf")}),
    ],
)
def test_little_to_draw_is_drawn_too(curve: SearchCurve, tmp_path: Path) -> None:
    save(progress_figure(curve), tmp_path / "progress.svg")
    assert "tokens scored" in (tmp_path / "progress.svg").read_text()


def test_what_lies_far_above_is_named_and_not_drawn(tmp_path: Path) -> None:
    save(progress_figure(CURVE), tmp_path / "progress.svg")
    text = (tmp_path / "progress.svg").read_text()
    assert "above the picture: linear, ntk" in text
