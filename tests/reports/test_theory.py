from __future__ import annotations

from pathlib import Path

import numpy as np

from ropewalk.reports.figures import save
from ropewalk.reports.theory import (
    AdvantageCurve,
    AngleStrip,
    BoundCurve,
    IslandStrip,
    ModelPoint,
    ScoreCurve,
    advantages_figure,
    angles_figure,
    bounds_figure,
    islands_figure,
    score_bounds_figure,
)


def test_bounds_name_their_curves_and_models(tmp_path: Path) -> None:
    path = tmp_path / "bounds.svg"
    curves = [BoundCurve("infimum", [1024, 4096], [4e3, 3e4], "o-", "tab:blue")]
    models = [ModelPoint("Left", 3900, 1e4), ModelPoint("Right", 4096, 1e4)]
    save(bounds_figure(curves, models, "heads of 128"), path)
    text = path.read_text(encoding="utf-8")
    for expected in ("infimum", "Left", "Right", "heads of 128", "4k"):
        assert expected in text


def test_one_length_can_be_drawn(tmp_path: Path) -> None:
    path = tmp_path / "one.svg"
    save(bounds_figure([BoundCurve("infimum", [4096], [3e4], "o-", "tab:blue")], []), path)
    assert "infimum" in path.read_text(encoding="utf-8")


def test_advantages_say_where_they_first_fall_below_zero(tmp_path: Path) -> None:
    path = tmp_path / "advantages.svg"
    distances = np.arange(4096)
    shares = np.cos(distances / 1000)
    curves = [
        AdvantageCurve("plain", distances, shares, 1571),
        AdvantageCurve("linear", distances, np.abs(shares), None),
    ]
    save(advantages_figure(curves), path)
    text = path.read_text(encoding="utf-8")
    assert "plain: first below zero at 1,571" in text
    assert "linear: never below zero" in text


def test_islands_have_a_strip_a_length(tmp_path: Path) -> None:
    path = tmp_path / "islands.svg"
    strips = [
        IslandStrip(1024, [(4293.0, 4330.0), (5602.0, 5644.0)], 6018.0),
        IslandStrip(2048, [(11587.0, 11649.0)], 22764.0),
    ]
    save(islands_figure(strips, "islands"), path)
    text = path.read_text(encoding="utf-8")
    for expected in ("1k", "2k", "islands"):
        assert expected in text


def test_score_bounds_name_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "score.svg"
    save(
        score_bounds_figure(
            [ScoreCurve("base 500", np.arange(10), np.linspace(1, 0, 10))], "bound"
        ),
        path,
    )
    assert "base 500" in path.read_text(encoding="utf-8")


def test_angles_show_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "angles.svg"
    distances = np.arange(64)
    save(
        angles_figure([AngleStrip("plain", distances, np.cos(distances), 16, distances > 40)]), path
    )
    text = path.read_text(encoding="utf-8")
    assert "plain" in text
    assert "longer, and a new angle" in text
