"""`ropewalk verify`: the real behaviour of a folder or a GGUF file on disk in each runtime."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping

import typer

from ropewalk.api.verify import verify
from ropewalk.audit.files.check import Check, Verdict
from ropewalk.audit.result import Audit
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, say, show_result
from ropewalk.errors import printable
from ropewalk.lengths import format_length
from ropewalk.runtimes.finding import TOLERANCE, Finding
from ropewalk.runtimes.reading import MEASURED, Reading

EXAMPLE = "ropewalk verify extended --plan plan.json"
EXIT: Mapping[Verdict, int] = {"OK": 0, "wrong": 1, "not established": 3}
_COLOUR: Mapping[Verdict, str] = {"OK": "green", "wrong": "red", "not established": "yellow"}


@command_of(verify)
def command(call: Call[Audit], *, as_json: JsonOption = False) -> None:
    """Check an exported model, from any tool, for silent long-context faults.

    Exit code: 0 passed, 1 failed, 3 inconclusive.
    """
    found = call()
    show_result(found, _show, as_json=as_json)
    if found.verdict != "OK":
        raise typer.Exit(EXIT[found.verdict])


def _show(found: Audit) -> None:
    from ropewalk.cli.terminal import Terminal, headed

    console = Terminal()
    title = headed(
        printable(str(found.path)), f" ({found.target}, for {format_length(found.length)}): "
    )
    own = f" for {found.written_for}" if found.written_for else ""
    title = title.append(found.verdict, _COLOUR[found.verdict]).append(own)
    console.print(title, soft_wrap=True)
    for name, reading in found.runtimes.items():
        misread, basis = name in found.misread_by, _basis(reading)
        verdict = "would misread this folder" if misread else found.verdict_in(name)
        line = f"{name}: {verdict} ({basis})"
        if not reading.unread:  # else its reason is given below
            line += f": {_in_words(reading)}"
        say(f"  {line}")
    if found.agreement is not None:
        say(f"  run in {found.agreement.runtime}: {found.agreement}")
    for check in found.checks:
        say(f"  {_checked(check)}")
    for note in found.notes:
        say(f"  {note}")
    for row in found.drafting:
        say(f"  with the drafter, {row.runtime}: {row.fit}: {row.reason}")
        for line in row.lines:
            say(f"    {line}")
    for finding in found.warnings:
        console.print()
        say(_told(finding, fails=finding in found.wrong))
    if found.not_established:
        console.print()
    for line in found.not_established:
        say(f"not established: {line}")


def _basis(reading: Reading) -> str:
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


def _in_words(reading: Reading) -> str:
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


def _told(finding: Finding, *, fails: bool) -> str:
    where = f" ({', '.join(finding.runtimes)})" if finding.runtimes else ""
    mark = "wrong" if fails else "note"
    lines = [f"{mark}: {finding.trap}{where}"]
    lines += textwrap.wrap(f"{finding.what}: {finding.consequence}.", 96, break_long_words=False)
    lines += textwrap.wrap(f"What to do: {finding.remedy}.", 96, break_long_words=False)
    return lines[0] + "".join(f"\n  {line}" for line in lines[1:])
