"""The table of models: its charts show what its rows hold, and every config says its source."""

from __future__ import annotations

import json

from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes.transformers import Transformers
from tools.models_table import parity
from tools.models_table.__main__ import MORE, RECORDED, checked
from tools.models_table.page import NAMES, RIGHT, by_length, by_method, page
from tools.observatory.serving_rotary import CONFIGS, SIZES, TARGET, excess

MADE = json.loads(RECORDED.read_text(encoding="utf-8"))
KNOWN = [model for model in MADE["models"] if model["runtimes"]]


def test_the_charts_hold_the_counts_of_the_table() -> None:
    grid = by_method(KNOWN)
    methods = [model["method"] for model in KNOWN]
    counts = [methods.count(name) for name in dict.fromkeys(sorted(methods, key=methods.count))]
    for runtime, row in zip(NAMES, grid.tiles, strict=True):
        told = sum(tile.value * n for tile, n in zip(row, counts[::-1], strict=True) if tile)
        assert round(told) == MADE["counts"][runtime][RIGHT]
    for series in by_length(KNOWN).series[1:]:
        values = [mark.y for mark in series.marks]
        assert values == sorted(values, reverse=True)
        [runtime] = [key for key, name in NAMES.items() if name == series.label]
        assert values[0] <= MADE["counts"][runtime][RIGHT]


def test_exports_are_compared_with_transformers_own_classes() -> None:
    assert all(kind == "right" for kind in parity._same())
    [changed] = [own for name, own in CONFIGS.items() if name == "llama"]
    config = {**SIZES, **changed}
    plan = extend_plan(present_plan(config), TARGET, "yarn")
    written = Transformers().written_config(config, plan)
    written["rope_parameters"]["factor"] *= 1.01
    found = parity.stock_cos_sin(written, plan.longest().geometry.rotary_dim // 2)
    assert excess(found, plan.longest(), range(TARGET)) > 1


def test_every_config_that_was_written_down_says_what_it_was_compared_with() -> None:
    rows = json.loads(MORE.read_text(encoding="utf-8"))
    assert all(row["checked"] for row in rows.values())
    assert MADE["checked"] == checked()
    assert sum(checked().values()) == len(rows)
    shown = page(MADE)
    assert shown.count("checked: ") == len(rows)
    assert shown.count('role="img"') == 2
