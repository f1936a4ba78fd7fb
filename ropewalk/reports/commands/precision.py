"""The page of a precision run: what number formats do to relative positions."""

from __future__ import annotations

from ropewalk.number_formats.conclusion import Precision
from ropewalk.reports.page.blocks import Axis, Chart, Mark, Page, Section, Series
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk


def page(run: RunOnDisk) -> Page:
    found = run.result(RESULTS, Precision)
    if found is None:
        return Page("Precision", "Unfinished: nothing was measured yet.", (), (), (RESULTS,))
    series = tuple(
        Series(
            f"{arm.arm}, {arm.weights}",
            tuple(Mark(s.first, s.value.mean, s.value.low, s.value.high) for s in arm.curve),
        )
        for arm in found.arms
    )
    chart = Chart(
        "Attention that moves when all positions are shifted",
        Axis("shift Δ₁"),
        Axis("D", "log10"),
        series,
        caption="With exact relative positions D would be 0. Bars are 95% intervals over texts.",
    )
    return Page(
        "How number formats change relative positions",
        found.summary(),
        (),
        (Section("By shift", (chart,), run.made_by),),
    )
