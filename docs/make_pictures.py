"""Draws the pictures of the docs from the code itself: `make pictures`."""

from __future__ import annotations

from pathlib import Path

from ropewalk.models import catalogue
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.reports.figures import save
from ropewalk.reports.schedules import factor_curves, factors_figure

IMAGES = Path(__file__).parent / "images"
SHOWN = ("linear", "ntk", "ntk_mixed", "yarn", "llama3", "two_band")


def methods() -> None:
    """The factors of six methods for the same task."""
    present = present_plan(catalogue.find("llama-2-7b").config)
    plans = {name: extend_plan(present, 32768, name) for name in SHOWN}
    title = "Llama 2 from 4k to 32k: how much slower each pair turns"
    save(factors_figure(factor_curves(plans), title), IMAGES / "methods.png")


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    methods()
