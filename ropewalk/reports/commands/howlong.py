"""The page of a howlong run: the usable length, and the curve."""

from __future__ import annotations

from ropewalk.blocks import Page, Section
from ropewalk.evaluation.usable.result import UsableLength
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk


def page(run: RunOnDisk) -> Page:
    usable = run.result(RESULTS, UsableLength)
    if usable is None:
        return Page("Usable length", "Unfinished: not all was read yet.", (), (), (RESULTS,))
    _, *blocks = usable.blocks()
    return Page(
        f"How long {usable.model} really is",
        usable.summary(),
        (),
        (Section("Facts found by length", tuple(blocks)),),
    )
