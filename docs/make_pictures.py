"""The picture of docs/methods.md, drawn from the code itself."""

from __future__ import annotations

from docs.figures import Picture
from ropewalk.models import catalogue
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.planning.tables import by_step, factors
from ropewalk.reports.figures import figure

SHOWN = ("linear", "ntk", "ntk_mixed", "yarn", "llama3", "two_band")


def pictures() -> dict[str, Picture]:
    """The factors of six methods for the same task."""
    present = present_plan(catalogue.find("llama-2-7b").config)
    plans = {name: extend_plan(present, 32768, name) for name in SHOWN}
    title = "Llama 2 from 4k to 32k: how much slower each pair turns"
    return {"docs/images/methods.png": Picture(figure([factors(by_step(plans), title)]))}
