"""The methods as small models measured them: the share that each retrieved, and their order.

studies/ranking measured the methods on small models of several shapes, untrained and fine-tuned,
and writes measured.json. It ordered them by their mean on some of the models, and checked the order
on the others. That is a starting order for other models: an evaluation of the model itself has the
last word. A method that is on no list was not measured.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE_PATH = Path(__file__).with_name("measured.json")


class MeasuredMethod(NamedTuple):
    """A method at so many times the length, on small models, unmodified or fine-tuned."""

    method: str
    factor: int
    """The target as a multiple of the length that the models were made for."""
    steps: int
    """Steps of fine-tuning at the target length; 0 for none."""
    models: int
    retrieved: tuple[float, float]
    """The lowest and the highest share of facts that a model retrieved."""
    best: tuple[float, float]
    """The same for whichever method was best on each model."""
    refuted: int
    """The number of models on which it retrieves less than half of what the best method does, by a
    difference whose interval leaves out 0."""

    @property
    def is_refuted(self) -> bool:
        """True if it is refuted on most of the models."""
        return 2 * self.refuted > self.models

    def __str__(self) -> str:
        trained = f"after {self.steps} steps of fine-tuning" if self.steps else "without training"
        return (
            f"measured {trained} at {self.factor} times the length, on {self.models} small models: "
            f"{self.share} retrieved, by the best method {_share(self.best)}"
        )

    @property
    def warning(self) -> str:
        """For whoever takes the method all the same."""
        return (
            f"{self.method} retrieved less than half as much as the best method on {self.refuted} "
            f"of {self.models} small models ({self}); evaluate the model before you rely on it"
        )

    @property
    def share(self) -> str:
        """`2 to 51%`"""
        return _share(self.retrieved)


def _share(ends: tuple[float, float]) -> str:
    low, high = (f"{100 * end:.0f}" for end in ends)
    return f"{low}%" if low == high else f"{low} to {high}%"


@cache
def measurements() -> tuple[MeasuredMethod, ...]:
    rows = json.loads(FILE_PATH.read_text(encoding="utf-8"))["rows"]
    return tuple(
        MeasuredMethod(**row | {name: tuple(row[name]) for name in ("retrieved", "best")})
        for row in rows
    )


def measured(method: str, scale: float, *, trained: bool) -> MeasuredMethod | None:
    """The measurement of a method at the nearest factor, trained for longest."""
    rows = [row for row in measurements() if row.method == method and bool(row.steps) == trained]
    if not rows:
        return None
    return min(rows, key=lambda row: (abs(math.log(row.factor / scale)), -row.steps))


UNCHANGED = "none"
"""The name of the unmodified model in the lists."""
FITS = "no new angle"
"""The same if the model meets no angle at the target that training has not shown it. It comes
first: every model of the study met new ones, so a method had something to mend."""
WITHOUT_TRAINING = (
    *(FITS, "yarn", "llama3", "two_band", "base_change", "dynamic_ntk", "ntk", "ntk_old"),
    *("ntk_fixed", UNCHANGED, "ntk_mixed", "linear"),
)
AFTER_TRAINING = (
    *(FITS, "base_change", "two_band", "llama3", "yarn", "ntk_mixed", "ntk_old", "ntk_fixed"),
    *("dynamic_ntk", "ntk", UNCHANGED, "linear"),
)
