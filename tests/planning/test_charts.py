from pathlib import Path

import numpy as np

from ropewalk.models import catalogue
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.planning.tables import by_step, factors
from ropewalk.reports.figures import figure, save

LLAMA2 = present_plan(catalogue.find("llama-2-7b").config)


def test_one_curve_a_step() -> None:
    plans = {"now": LLAMA2, "dynamic": extend_plan(LLAMA2, 16384, "dynamic_ntk")}
    series = factors(by_step(plans)).series
    labels = ["now", "dynamic to 4k", "dynamic to 8k", "dynamic to 16k"]
    assert [own.label for own in series] == labels
    last = [mark.y for mark in series[-1].marks]
    np.testing.assert_array_equal(last, plans["dynamic"].longest().rescale_factors)


def test_pairs_from_the_line_on_never_turned_in_pretraining() -> None:
    [line] = factors(by_step({"now": LLAMA2})).verticals
    wavelengths, first = LLAMA2.longest().wavelengths, int(line.at)
    assert wavelengths[first - 1] <= 4096 < wavelengths[first]


def test_a_name_with_dollar_signs_is_no_formula(tmp_path: Path) -> None:
    name = "$a_$"
    save(figure([factors(by_step({name: LLAMA2}), name)]), tmp_path / "factors.png")
