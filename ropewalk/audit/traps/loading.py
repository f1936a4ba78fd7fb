"""Traps when a runtime loads a model.

refused, remote-code.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.audit.finding import Finding, Subject
from ropewalk.audit.traps.config_keys import factor_count


def remote_code(subject: Subject) -> Iterator[Finding]:
    if subject.config is not None and subject.config.get("auto_map"):
        yield Finding(
            "remote-code",
            (),
            "the config names custom code (auto_map)",
            "with trust_remote_code that code runs in place of the stock model that was read here; "
            "ropewalk never runs it",
            "load the model without trust_remote_code",
            wrong=False,
        )


def refused(subject: Subject) -> Iterator[Finding]:
    if any(factor_count(subject)):  # named already, and better
        return
    for reading in subject.readings:
        if reading.refused:
            yield Finding(
                "refused",
                (reading.runtime,),
                reading.refused,
                "it does not load",
                "correct that value, or export the model again",
            )
