"""The result of a verification: a verdict for each runtime, and one over all.

- `drafter-short`: the drafter does not reach the length
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill, indent
from typing import Literal

from ropewalk.agreement import Agreement
from ropewalk.audit.files.check import Check, Verdict
from ropewalk.blocks import Block, Kind, Paragraph, Title
from ropewalk.errors import printable
from ropewalk.lengths import format_length
from ropewalk.runtimes.finding import TOLERANCE, Finding
from ropewalk.runtimes.reading import MEASURED, RotaryReading
from ropewalk.runtimes.serving import Serving
from ropewalk.values import Result

ModelForm = Literal["transformers folder", "GGUF file"]


@dataclass(frozen=True, eq=False)
class Audit(Result):
    """A model's effect in each runtime, the state of its files, and its traps."""

    target: ModelForm
    path: Path
    length: int
    """The length that it was asked for."""
    runtimes: Mapping[str, RotaryReading]
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
        runtime = self.written_for
        return tuple(f for f in self.warnings if f.wrong and (not runtime or f.concerns(runtime)))

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
        lines += [
            f"with the drafter, {row.runtime}: {row.reason}"
            for row in self.drafting
            if row.fit == "unknown" and row.runtime in self.runtimes
        ]
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
        verdicts = ", ".join(
            f"{name} {self.verdict_in(name)} ({reading.basis})"
            for name, reading in self.runtimes.items()
        )
        length, runtime = format_length(self.length), self.written_for
        verdict = f"{self.verdict}{f' for {runtime}' if runtime else ''}"
        text = f"{printable(str(self.path))} ({self.target}, for {length}): {verdict}; {verdicts}"
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

    def blocks(self) -> Iterator[Block]:
        suffix = f" for {self.written_for}" if self.written_for else ""
        length = format_length(self.length)
        yield Title(
            printable(str(self.path)), f" ({self.target}, for {length}): {self.verdict}{suffix}"
        )
        for name, reading in self.runtimes.items():
            misread = name in self.misread_by
            verdict = "would misread this folder" if misread else self.verdict_in(name)
            line = f"{name}: {verdict} ({_basis(reading)})"
            if not reading.unread:  # else its reason is given below
                line += f": {_in_words(reading)}"
            yield Paragraph(f"  {line}")
        if self.agreement is not None:
            yield Paragraph(f"  run in {self.agreement.runtime}: {self.agreement}")
        for check in self.checks:
            yield Paragraph(f"  {_checked(check)}")
        for note in self.notes:
            yield Paragraph(f"  {note}")
        for row in self.drafting:
            yield Paragraph(f"  with the drafter, {row.runtime}: {row.fit}: {row.reason}")
            yield from (Paragraph(f"    {line}") for line in row.lines)
        for finding in self.warnings:
            where = f" ({', '.join(finding.runtimes)})" if finding.runtimes else ""
            fails = finding in self.wrong
            mark = "wrong" if fails else "note"
            kind: Kind = "warning" if fails else "plain"
            yield Paragraph(f"\n{mark}: {finding.trap}{where}", kind)
            for text in (
                f"{finding.what}: {finding.consequence}.",
                f"What to do: {finding.remedy}.",
            ):
                yield Paragraph(indent(fill(text, 96, break_long_words=False), "  "))
        for line in self.not_established:
            yield Paragraph(f"not established: {line}", "warning")


def _basis(reading: RotaryReading) -> str:
    if reading.basis == "by its rules":
        rules = "its rotary module was measured" if reading.source == MEASURED else "by its rules"
        return f"{rules}, not tested here"
    return "tested" if reading.basis == "run" else reading.basis


def _checked(check: Check) -> str:
    if check.subject == "bytes" and check.verdict == "not established":
        return f"{check.subject} {check.what}"
    if check.verdict == "OK":
        return f"{check.subject}: OK, {check.what}"
    return f"{check.subject}: {check.verdict}"  # the reason is given below


def _in_words(reading: RotaryReading) -> str:
    if reading.refused:
        return f"does not load: {reading.refused}"
    parts = []
    for layer_type, steps in reading.layers.items():
        longest = steps[-1]
        period = longest.slowest_period
        turns = "some do not turn" if math.isinf(period) else f"slowest period {period:,.0f}"
        parts.append(f"{layer_type}: {longest.inverse_frequencies.size} pairs, {turns}")
        if abs(longest.attention_scaling - 1) > TOLERANCE:
            parts[-1] += f", attention factor {longest.attention_scaling:.6g}"
    if reading.switches != "never":
        parts.append(f"factors change {reading.switches}")
    if reading.limit is not None:
        parts.append(f"accepts up to {format_length(reading.limit)}")
    return "; ".join([*parts, *reading.notes])
