"""The check of the files of one subject, with its findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from ropewalk.runtimes.finding import Finding
from ropewalk.values import Value

Verdict = Literal["OK", "wrong", "not established"]
Subject = Literal["weights", "tokenizer", "bytes"]
SHOWN = 3
"""The most names or problems of one kind that a finding lists."""


@dataclass(frozen=True, eq=False)
class Check(Value):
    """The files of one subject."""

    subject: Subject
    verdict: Verdict
    what: str
    """The observation; if nothing is established, the reason."""
    remedy: str = ""
    """The step that would establish it."""

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}" + (f"; {self.remedy}" if self.remedy else "")


class Checked(NamedTuple):
    """A check with its findings: faults and notes."""

    check: Check
    findings: tuple[Finding, ...] = ()


def listed(names: Sequence[str]) -> str:
    """The first of these names, and the number of the others."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def fault(trap: str, consequence: str, remedy: str) -> Callable[[str], Finding]:
    """The findings of one trap of the files, each from what was seen."""
    return partial(Finding, trap, (), consequence=consequence, remedy=remedy)


def passed(subject: Subject, what: str, *notes: Finding) -> Checked:
    return Checked(Check(subject, "OK", what), notes)


def wrong(subject: Subject, first: Finding, *others: Finding) -> Checked:
    return Checked(Check(subject, "wrong", first.what), (first, *others))


def unknown(subject: Subject, what: str, remedy: str = "") -> Checked:
    return Checked(Check(subject, "not established", what, remedy))
