"""What a verification comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ropewalk.audit.finding import Finding
from ropewalk.audit.reading import Reading
from ropewalk.exporting.parity import Parity
from ropewalk.lengths import format_length
from ropewalk.values import Result

Target = Literal["transformers folder", "GGUF file"]


@dataclass(frozen=True, eq=False)
class Audit(Result):
    """What a model on disk does in each runtime, and the traps it is in."""

    target: Target
    path: Path
    length: int
    """The length that it was asked for."""
    runtimes: Mapping[str, Reading]
    warnings: tuple[Finding, ...]
    compared: bool
    """There was something to compare the rotation with."""
    parity: Parity | None = None
    """None: it was not run, or there was nothing to compare its numbers with."""
    notes: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings that fail it; the others inform."""
        return tuple(finding for finding in self.warnings if finding.wrong)

    @property
    def passed(self) -> bool:
        return not self.wrong

    def derived(self) -> dict[str, object]:
        return {"passed": self.passed}

    @property
    def verdict(self) -> str:
        if self.wrong:
            return f"{len(self.wrong)} thing{'s' * (len(self.wrong) > 1)} wrong"
        unread = [name for name, reading in self.runtimes.items() if reading.unread]
        if len(unread) == len(self.runtimes):
            return f"no trap found, but what {', '.join(unread)} would do is unknown"
        if self.compared:
            but = f" (unknown in {', '.join(unread)})" if unread else ""
            return f"all well: it serves {format_length(self.length)}{but}"
        return "no trap found, but its rotation could not be compared: give a plan"

    def summary(self) -> str:
        told = f"{self.path} ({self.target}), judged for {', '.join(self.runtimes)}: {self.verdict}"
        if self.wrong:
            names = dict.fromkeys(finding.trap for finding in self.wrong)
            told += f" ({', '.join(names)})"
        if self.parity is not None:
            told += f"; {self.parity.runtime} gives {self.parity}"
        return f"{told}."
