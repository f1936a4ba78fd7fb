"""The settings of a precision measurement that a user gave. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ropewalk.errors import InvalidValue
from ropewalk.untrusted import whole_number


@dataclass(frozen=True)
class PrecisionRequest:
    """A measurement; None takes the article's grids, as far as the model and the text reach."""

    quick: bool = False
    """Measure few shifts and sequences."""
    length: int | None = None
    sequences: int | None = None
    arms: tuple[str, ...] | None = None
    shifts: tuple[int, ...] | None = None
    run: Path | None = None
    """The directory that keeps the measurements; None keeps nothing."""

    def __post_init__(self) -> None:
        if self.sequences is not None and whole_number(self.sequences, "sequences") < 1:
            raise InvalidValue("sequences", self.sequences, "must be positive", "give 1 or more")
