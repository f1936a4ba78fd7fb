"""A measured value with its interval: one written form, and one JSON form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from ropewalk.lengths import format_length

Ends: TypeAlias = tuple[float, float]
Unit: TypeAlias = Literal[
    "share", "perplexity", "nats", "difference", "difference in nats", "change", "tokens"
]
CONFIDENCE = 0.95


def _perplexity(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


_NUMBERS: Mapping[Unit, Callable[[float], str]] = {
    "share": "{:.0%}".format,
    "perplexity": _perplexity,
    "nats": "{:.3f}".format,
    "difference": "{:+.3g}".format,
    "difference in nats": "{:+.3f}".format,
    "change": "{:+.1%}".format,
    "tokens": lambda value: format_length(round(value)),
}


@dataclass(frozen=True)
class Interval:
    """A value that was estimated, and the ends between which the true one lies."""

    value: float
    low: float | None
    """The lower end; None, as the upper end, if there is too little for an interval."""
    high: float | None
    unit: Unit
    varies: str = "samples"
    """What another measurement would draw anew."""
    level: float = CONFIDENCE
    """The share of such intervals that contain the true value."""

    @classmethod
    def of(
        cls,
        value: float,
        ends: Ends | None,
        unit: Unit,
        varies: str = "samples",
        level: float = CONFIDENCE,
    ) -> Interval:
        low, high = ends or (None, None)
        return cls(value, low, high, unit, varies, level)

    @property
    def ends(self) -> Ends | None:
        """Both ends, if there are any."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def is_above(self, limit: float) -> bool:
        """True if the whole interval is; False without one."""
        return self.low is not None and self.low > limit

    def is_below(self, limit: float) -> bool:
        """True if the whole interval is; False without one."""
        return self.high is not None and self.high < limit

    def mapped(self, rising: Callable[[float], float], unit: Unit) -> Interval:
        """The interval of a rising function of the value."""
        low, high = (None if end is None else rising(end) for end in (self.low, self.high))
        return replace(self, value=rising(self.value), low=low, high=high, unit=unit)

    def __neg__(self) -> Interval:
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return replace(self, value=-self.value, low=low, high=high)

    def number(self) -> str:
        """The value alone."""
        return _NUMBERS[self.unit](self.value)

    def __str__(self) -> str:
        if self.ends is None:
            return f"{self.number()} (too few {self.varies} for an interval)"
        return written(self.value, self.ends, _NUMBERS[self.unit])

    def range(self) -> str:
        """The interval alone, in brackets; empty if there is none."""
        return "" if self.ends is None else str(self).removeprefix(self.number()).strip()


def written(value: float, ends: Ends, number: Callable[[float], str]) -> str:
    """A value and its interval: `80% (58 to 92%)`."""
    return f"{number(value)} ({number(ends[0]).removesuffix('%')} to {number(ends[1])})"
