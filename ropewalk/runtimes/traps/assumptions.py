"""Traps in the assumptions made in reading the config.

assumption, theta-conflict, scaling-conflict.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.runtimes.finding import Finding, Subject


def assumed(subject: Subject) -> Iterator[Finding]:
    """Those on which runtimes are known to differ are wrong; the others inform."""
    for name, text in subject.assumptions:
        if name == "theta-conflict" and len(subject.ropes) == 1:
            yield Finding(
                "theta-conflict",
                (),
                text,
                "transformers 4 and readers of its keys follow the config's own base",
                "write the same base in both, or only in rope_parameters",
            )
        elif name == "scaling-conflict":
            yield Finding(
                "scaling-conflict",
                (),
                text,
                "some readers follow rope_parameters, so runtimes serve different models",
                "keep one of the two",
            )
        elif name != "theta-conflict":
            yield Finding(
                "assumption",
                (),
                text,
                "a runtime that reads the config differently will serve a different model",
                "correct the config, or check that this is meant",
                wrong=False,
            )
