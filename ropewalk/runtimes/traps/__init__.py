"""The known ways in which a setting is silently dropped, squared or ignored, each found by name.

A trap is a public function from a `ExaminedModel` to its findings, in the file of its subject:

    config_keys     the keys of a config contradict each other, or are misspelt, missing, not read,
                    or left open; a runtime does not load it, or would run code of the folder
    lengths         a stated length is too short, multiplied, or has nothing behind it
    rotation        frequencies or attention scaling differ from the plan's, change with the length,
                    or depend on positions in a way that is lost
    gguf            faults inside a GGUF file, found in its header

Each file lists the names that it finds. `wrong` findings fail a verification, the others inform.
"""

from __future__ import annotations

from dataclasses import replace
from inspect import isfunction

from ropewalk.runtimes.finding import ExaminedModel, Finding, Trap
from ropewalk.runtimes.traps import config_keys, lengths, rotation

TRAPS: tuple[Trap, ...] = tuple(
    trap
    for file in (config_keys, lengths, rotation)
    for name, trap in vars(file).items()
    if isfunction(trap) and trap.__module__ == file.__name__ and not name.startswith("_")
)


def find(subject: ExaminedModel) -> tuple[Finding, ...]:
    """Every trap that this subject is in; one that several runtimes share is reported once."""
    merged: dict[tuple[object, ...], Finding] = {}
    for trap in TRAPS:
        for finding in trap(subject):
            key = (finding.trap, finding.what, finding.consequence, finding.remedy, finding.wrong)
            earlier = merged.get(key, replace(finding, runtimes=()))
            runtimes = dict.fromkeys((*earlier.runtimes, *finding.runtimes))
            merged[key] = replace(earlier, runtimes=tuple(runtimes))
    return tuple(merged.values())
