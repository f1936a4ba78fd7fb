from pathlib import Path

import numpy as np

from ropewalk.models import catalogue
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.reports.figures import save
from ropewalk.reports.schedules import factor_curves, factors_figure

LLAMA2 = present_plan(catalogue.find("llama-2-7b").config)


def test_one_curve_a_step() -> None:
    plans = {"now": LLAMA2, "dynamic": extend_plan(LLAMA2, 16384, "dynamic_ntk")}
    curves = factor_curves(plans)
    labels = ["now", "dynamic to 4k", "dynamic to 8k", "dynamic to 16k"]
    assert [curve.label for curve in curves] == labels
    np.testing.assert_array_equal(curves[-1].factors, plans["dynamic"].longest().rescale_factors)


def test_the_shaded_pairs_never_turned_in_pretraining() -> None:
    (curve,) = factor_curves({"now": LLAMA2})
    wavelengths = LLAMA2.longest().wavelengths
    assert curve.unturned_from is not None
    assert wavelengths[curve.unturned_from - 1] <= 4096 < wavelengths[curve.unturned_from]


def test_the_same_values_give_the_same_bytes(tmp_path: Path) -> None:
    curves = factor_curves({"ntk": extend_plan(LLAMA2, 8192, "ntk")})
    for ending in ("svg", "png"):
        first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
        save(factors_figure(curves), first)
        save(factors_figure(curves), second)
        assert first.read_bytes() == second.read_bytes()


def test_a_name_with_dollar_signs_is_no_formula(tmp_path: Path) -> None:
    name = "$a_$"
    save(factors_figure(factor_curves({name: LLAMA2}), name), tmp_path / "factors.png")
