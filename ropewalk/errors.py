"""What ropewalk says when it cannot go on.

RopewalkError             everything below: one line for a user, never a traceback; exit status 1
└── InputError            what the user gave is wrong; exit status 2
    ├── InvalidValue      a value breaks a rule: says key, value, rule and remedy
    ├── UnknownName       nothing has that name: lists the names that exist
    └── Unsupported       refused by name: what was asked for cannot be expressed or done here
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RopewalkError(Exception):
    """An error meant for a user: its text names what is wrong and what to do about it."""

    exit_status = 1


class InputError(RopewalkError):
    """The input is wrong, as opposed to the work failing."""

    exit_status = 2


class InvalidValue(InputError):
    """A value breaks a rule."""

    def __init__(self, key: str, value: object, rule: str, remedy: str) -> None:
        self.key, self.value, self.rule, self.remedy = key, value, rule, remedy
        super().__init__(f"{key} = {_shortened(value)}: {rule}; {remedy}")

    def within(self, parent: str) -> InvalidValue:
        """The same error, its key seen from further out (`plan.json: schedules.base`)."""
        joint = "" if self.key.startswith("[") or parent.endswith(": ") else "."
        return InvalidValue(f"{parent}{joint}{self.key}", self.value, self.rule, self.remedy)


class UnknownName(InputError):
    """A name that nothing has, with those that something has."""

    def __init__(self, kind: str, name: str, valid: Iterable[str]) -> None:
        self.kind, self.name, self.valid = kind, name, tuple(valid)
        close = difflib.get_close_matches(name, self.valid, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        listed = ", ".join(self.valid) if self.valid else "there are none"
        super().__init__(f"unknown {kind} {_shortened(name)}{hint}; valid: {listed}")


class Unsupported(InputError):
    """What was asked for is understood, and refused with its reason."""


def _shortened(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
