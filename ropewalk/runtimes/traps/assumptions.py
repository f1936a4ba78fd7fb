"""Traps in the assumptions made in reading the config.

assumption.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.runtimes.finding import Finding, Subject

_FOUND_ELSEWHERE = {"scaling-conflict", "theta-conflict"}
"""By config_keys.py."""


def assumed(subject: Subject) -> Iterator[Finding]:
    for assumption in subject.assumptions:
        if assumption.name not in _FOUND_ELSEWHERE:
            yield Finding(
                "assumption",
                (),
                assumption.text,
                "a runtime that reads the config differently will serve a different model",
                "correct the config, or check that this is meant",
                wrong=False,
            )
