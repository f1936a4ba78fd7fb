"""Traps in the assumptions made in reading the config.

assumption.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.errors import RopewalkError
from ropewalk.models.assumptions import assumptions
from ropewalk.runtimes.finding import Finding, Subject

_FOUND_ELSEWHERE = {"scaling-conflict", "theta-conflict"}
"""By config_keys.py."""


def assumed(subject: Subject) -> Iterator[Finding]:
    try:
        found = assumptions(subject.config) if subject.config else ()
    except RopewalkError:  # what cannot be read is reported by those who read it
        return
    for assumption in found:
        if assumption.name not in _FOUND_ELSEWHERE:
            yield Finding(
                "assumption",
                (),
                assumption.text,
                "a runtime that reads the config differently will serve a different model",
                "correct the config, or check that this is meant",
                wrong=False,
            )
