"""The page of a precision run: the effect of number formats on relative positions."""

from __future__ import annotations

from ropewalk.blocks import Page, Section
from ropewalk.number_formats.results import Precision
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk


def page(run: RunOnDisk) -> Page:
    result = run.result(RESULTS, Precision)
    if result is None:
        return Page("Precision", "Unfinished: nothing was measured yet.", (), (), (RESULTS,))
    return Page(
        "How number formats change relative positions",
        result.summary(),
        ("With exact relative positions D would be 0. Bars are 95% intervals over sequences.",),
        (Section("Attention that moves when all positions are shifted", tuple(result.charts())),),
    )
