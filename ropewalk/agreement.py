"""The agreement of two computations: one value, whoever computed.

The gate of an export, a trial of a model on disk, and the proof that a plan took effect all say it
in these terms. What was read by rules, and not run, has no such value (`runtimes/reading.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ropewalk.values import Unbounded, Value

Quantity = Literal[
    "logits",
    "log-probabilities",
    "cos and sin",
    "attention logits",
    "queries and keys through the cache",
]


@dataclass(frozen=True, eq=False)
class Agreement(Value):
    """The distance of a runtime's numbers, or of layers', from those of the planned model."""

    runtime: str
    """A runtime with its version (`transformers 5.23.0`), or the layers of a type."""
    quantity: Quantity
    """The compared quantity. llama.cpp gives out log-probabilities, of its likeliest tokens;
    attention logits count in parts of the largest that a query and a key of these norms could have,
    queries and keys in parts of their mean norm."""
    max_difference: Unbounded
    tolerance: Unbounded
    tokens: int
    """The number of positions compared."""
    usual: float | None = None
    """The tolerance that was not enough, if `tolerance` is that of the model's own measured
    rounding."""
    median_difference: Unbounded | None = None
    """If weights were rounded: the median difference from the planned model with these weights. One
    rounding may choose another expert and move some far, but not half."""
    median_tolerance: float | None = None
    """The largest median allowed: a multiple of the median change that rounding causes."""
    reference: str = "the reference implementation"
    length: int = 0
    """The length that they reach to; 0 if that is not recorded."""

    _optional = ("reference", "length")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "max_difference", bound(self.max_difference))
        if self.median_difference is not None:
            object.__setattr__(self, "median_difference", bound(self.median_difference))

    @property
    def passed(self) -> bool:
        return self.max_difference <= self.tolerance and self._passed_by_median

    @property
    def _passed_by_median(self) -> bool:
        if self.median_difference is None or self.median_tolerance is None:
            return True
        return self.median_difference <= self.median_tolerance

    def derived(self) -> dict[str, object]:
        return {"passed": self.passed}

    def __str__(self) -> str:
        near = "equal to" if self.max_difference == 0 else f"within {self.max_difference:.2g} of"
        reach = f" up to position {self.length:,}" if self.length else ""
        return (
            f"{self.quantity} {near} those of {self.reference} "
            f"on {self.tokens:,} tokens{reach} (allowed difference: {self.allowed}){self.by_median}"
        )

    @property
    def by_median(self) -> str:
        """The median, if weights were rounded."""
        if self.median_difference is None or self.median_tolerance is None:
            return ""
        return (
            f"; with its weights rounded alike, half of them within {self.median_difference:.2g} "
            f"(allowed: {self.median_tolerance:.2g})"
        )

    @property
    def allowed(self) -> str:
        """The tolerance, and why it is no smaller."""
        if self.usual is None:
            return f"{self.tolerance:.2g}"
        if math.isinf(self.tolerance):
            return "any, for one rounding may choose another expert"
        return (
            f"{self.tolerance:.2g} instead of {self.usual:.2g}: what rounding does to this model, "
            "as measured on it"
        )


def bound(difference: float) -> float:
    """JSON has no NaN; what is not a number has no bound."""
    return math.inf if math.isnan(difference) else difference
