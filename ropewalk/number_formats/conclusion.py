"""The result of `precision`, in words and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ropewalk.lengths import format_length
from ropewalk.number_formats.results import GIVEN, Findings
from ropewalk.reports.precision import figures
from ropewalk.values import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Precision(Findings, Result):
    """The effect of a shift of all positions under each number format, and a diagnosis in words."""

    def summary(self) -> str:
        given = [arm for arm in self.arms if arm.weights == GIVEN]
        shown = ", ".join(f"{arm.arm} {arm.strays}" for arm in given)
        if any(arm.strays.low is None for arm in given):
            shown += " (no intervals: they need five sequences)"
        traps = "; ".join(f"{gain.path}: {gain.trap}" for gain in self.traps)
        return (
            f"{self.model} on {self.sequences} sequences of {format_length(self.length)} tokens: "
            f"a shift by {self.reference} positions changes attention by D = {shown}. "
            + (f"Traps of loading: {traps}." if traps else "No trap of loading.")
        )

    def figure(self) -> Figure:
        """The attention difference by shift and by token, and the logit difference by length."""
        return figures(self)["shifts"]
