"""The result of a verification: a verdict for each runtime, and one over all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ropewalk.agreement import Agreement
from ropewalk.audit.files.check import Check, Verdict
from ropewalk.errors import printable
from ropewalk.lengths import format_length
from ropewalk.runtimes.finding import Finding
from ropewalk.runtimes.reading import Reading
from ropewalk.runtimes.serving import Serving
from ropewalk.values import Result

Target = Literal["transformers folder", "GGUF file"]


@dataclass(frozen=True, eq=False)
class Audit(Result):
    """A model's effect in each runtime, the state of its files, and its traps."""

    target: Target
    path: Path
    length: int
    """The length that it was asked for."""
    runtimes: Mapping[str, Reading]
    checks: tuple[Check, ...]
    """Checks of the files themselves: weights, tokenizer, bytes."""
    warnings: tuple[Finding, ...]
    compared: bool
    """There was something to compare the rotation with."""
    written_for: str = ""
    """The runtime of its export, whose verdict counts; empty if those of all runtimes count."""
    agreement: Agreement | None = None
    """None if it was not run, or if there was nothing to compare its numbers with."""
    notes: tuple[str, ...] = ()
    drafting: tuple[Serving, ...] = ()
    """What each runtime does with the drafter that was named, and the lines for both."""

    def with_drafting(self, rows: tuple[Serving, ...]) -> Audit:
        """The same with rows for a drafter; a runtime in which it does not reach fails."""
        short = [
            Finding(
                "drafter-short",
                (row.runtime,),
                "the drafter does not reach the length",
                row.reason,
                "serve both by the lines for it" if row.lines else "give another drafter",
            )
            for row in rows
            if row.fit == "impossible" and row.runtime in self.runtimes
        ]
        return replace(self, drafting=rows, warnings=(*self.warnings, *short))

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings that fail it; the others inform."""
        own = self.written_for
        return tuple(f for f in self.warnings if f.wrong and (not own or f.concerns(own)))

    @property
    def misread_by(self) -> tuple[str, ...]:
        """Other runtimes than that of its export, which would not follow the plan."""
        others = [f.runtimes for f in self.warnings if f.wrong and f not in self.wrong]
        return tuple(dict.fromkeys(name for names in others for name in names))

    @property
    def verdict(self) -> Verdict:
        """OK: its files were checked, and every runtime was run, or read by its rules."""
        if self.wrong:
            return "wrong"
        return "not established" if self.not_established else "OK"

    def verdict_in(self, runtime: str) -> Verdict:
        """The verdict for one runtime. Faults of the files count in all."""
        if any(finding.wrong and finding.concerns(runtime) for finding in self.warnings):
            return "wrong"
        return "OK" if self.compared and not self.runtimes[runtime].unread else "not established"

    @property
    def not_established(self) -> tuple[str, ...]:
        """Everything left unchecked, each with the reason and the step that would establish it."""
        # Bytes are compared where that can be done; without a manifest, the headers judge.
        lines = [
            str(check)
            for check in self.checks
            if check.verdict == "not established" and check.subject != "bytes"
        ]
        unread: dict[str, list[str]] = {}
        for name, reading in self.runtimes.items():
            if reading.unread and self.written_for in ("", name):
                unread.setdefault(reading.unread, []).append(name)
        lines += [f"{', '.join(names)}: {reason}" for reason, names in unread.items()]
        if not self.compared and not all(reading.unread for reading in self.runtimes.values()):
            lines.append("rotation: nothing to compare it with; give a plan")
        return tuple(lines)

    def derived(self) -> dict[str, object]:
        return {
            "verdict": self.verdict,
            "misread_by": self.misread_by,
            "verdicts": {name: self.verdict_in(name) for name in self.runtimes},
            "not_established": self.not_established,
        }

    def summary(self) -> str:
        told = ", ".join(
            f"{name} {self.verdict_in(name)} ({reading.basis})"
            for name, reading in self.runtimes.items()
        )
        length, own = format_length(self.length), self.written_for
        verdict = f"{self.verdict}{f' for {own}' if own else ''}"
        text = f"{printable(str(self.path))} ({self.target}, for {length}): {verdict}; {told}"
        if self.wrong:
            names = dict.fromkeys(finding.trap for finding in self.wrong)
            text += f"; wrong: {', '.join(names)}"
        elif self.not_established:
            text += f"; not established: {'; '.join(self.not_established)}"
        if self.misread_by:
            text += f"; {' and '.join(self.misread_by)} would misread it"
        if self.agreement is not None:
            text += f"; {self.agreement.runtime} gives {self.agreement}"
        return f"{text}."
