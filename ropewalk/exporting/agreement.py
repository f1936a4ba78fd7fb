"""What an export comes to: how close its runtime is to the plan, and what an approximation costs.

Light values: reading them back needs no runtime.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ropewalk.errors import GateFailed
from ropewalk.values import Result, Unbounded, Value

Quantity = Literal["logits", "log-probabilities"]


@dataclass(frozen=True, eq=False)
class Agreement(Value):
    """How far the numbers of a runtime are from those of the planned model."""

    runtime: str
    """The runtime that was run, with its version: `transformers 5.23.0`."""
    quantity: Quantity
    """What was compared. llama.cpp gives out log-probabilities, of its likeliest tokens."""
    max_difference: Unbounded
    tolerance: Unbounded
    tokens: int
    """How many positions were compared, beyond the trained length as well as below it."""
    usual: float | None = None
    """The tolerance that was not enough, where `tolerance` is that of the model's own rounding,
    which was measured."""
    median_difference: Unbounded | None = None
    """Where weights were rounded: how far half of all is at most from the planned model with these
    weights. One rounding may choose another expert and move some far, but not half."""
    median_tolerance: float | None = None
    """The largest median allowed: a multiple of the median change that rounding causes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "max_difference", _bound(self.max_difference))
        if self.median_difference is not None:
            object.__setattr__(self, "median_difference", _bound(self.median_difference))

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
        return (
            f"{self.quantity} {near} the planned model's over {self.tokens:,} tokens "
            f"(allowed difference: {self.allowed}){self.by_median}"
        )

    @property
    def by_median(self) -> str:
        """The median, where weights were rounded."""
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


@dataclass(frozen=True, eq=False)
class Loss(Value):
    """The measured cost of an approximation."""

    nats: Unbounded
    """How far the next-token distributions lie apart: mean Kullback-Leibler divergence a token."""
    max_logit_difference: Unbounded

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nats", _bound(self.nats))
        object.__setattr__(self, "max_logit_difference", _bound(self.max_logit_difference))

    def __str__(self) -> str:
        return (
            f"{self.nats:.2g} nats per token on average, logits by up to "
            f"{self.max_logit_difference:.2g}"
        )


@dataclass(frozen=True, eq=False)
class Exported(Result):
    """What was written, and the proof that it follows the plan."""

    target: str
    """The runtime that it was written for."""
    path: Path
    agreement: Agreement | None
    """None: nothing here can run that runtime."""
    warnings: tuple[str, ...] = ()
    load: str = ""
    """The command or the line of Python that loads it."""
    overrides: str = ""
    """The command that runs the source itself under the plan, where its weights are unchanged."""
    elsewhere: tuple[str, ...] = ()
    """The commands that load it in another runtime that takes the same file: Ollama."""

    def with_warnings(self, more: tuple[str, ...]) -> Exported:
        return replace(self, warnings=(*more, *self.warnings))

    def moved(self, folder: Path) -> Exported:
        """The same in another folder: a run directory may have moved."""
        path = folder / self.path.name
        before, now = (_in_modelfile(each) for each in (self.path, path))
        return replace(
            self,
            path=path,
            load=self.load.replace(shlex.quote(str(self.path)), shlex.quote(str(path))),
            elsewhere=tuple(line.replace(before, now) for line in self.elsewhere),
        )

    def summary(self) -> str:
        wrote = f"Wrote {self.path} for {self.target}"
        if self.agreement is None:
            return f"{wrote}; it was not run here, and nothing is proven."
        count = len(self.warnings)
        warned = f" {count} warning{'s' * (count > 1)}." if count else ""
        return f"{wrote}; {self.agreement.runtime} gives {self.agreement}.{warned}"


def _in_modelfile(path: Path) -> str:
    return f"FROM {path}" if path.is_absolute() else f"FROM ./{path}"


def _bound(difference: float) -> float:
    """JSON has no NaN; what is not a number has no bound."""
    return math.inf if math.isnan(difference) else difference


class NotTheSame(GateFailed):
    """What was written computes something else: it has been removed, and this is the proof."""

    def __init__(self, exported: Exported, agreement: Agreement) -> None:
        self.exported, self.agreement = exported, agreement
        super().__init__(
            f"{exported.path} was not written",
            [
                f"its {agreement.quantity} in {agreement.runtime} differ from the planned "
                f"model's by {agreement.max_difference:.3g} over {agreement.tokens} tokens, "
                f"and the tolerance is {agreement.allowed}{agreement.by_median}"
            ],
        )

    def __reduce__(self) -> tuple[object, ...]:
        return NotTheSame, (self.exported, self.agreement)
