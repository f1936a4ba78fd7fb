"""The errors of ropewalk.

RopewalkError             everything below: one line for a user, no traceback; exit status 1
├── GateFailed            the work is done and a check of ours refuses it: names every problem
└── InputError            what the user gave is wrong; exit status 2
    ├── InvalidValue      a value breaks a rule: says key, value, rule and remedy
    ├── UnknownName       nothing has that name: lists the names that exist; a ValueError too
    └── Unsupported       refused by name: what was asked for cannot be expressed or done here
        └── MissingExtra  a package is not installed: says which extra brings it; an ImportError too
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

SHOWN_VALUE = 80  # characters of it in a message
SHOWN_KEY = 240  # it starts with a file's path and ends with what is wrong: keep both ends


class RopewalkError(Exception):
    """An error meant for a user: its text names what is wrong and what to do about it."""

    exit_status = 1

    def __init__(self, text: str = "") -> None:
        # Names and values come from files too, and are shown in terminals.
        super().__init__(printable(text))


class GateFailed(RopewalkError):
    """A check between a result and its use was not met."""

    result: Any = None
    """The result that was refused, for whoever wants its figures."""

    def __init__(self, subject: str, problems: Iterable[str]) -> None:
        self.subject, self.problems = subject, tuple(problems)
        super().__init__(f"{subject}: {'; '.join(self.problems)}")

    def __reduce__(self) -> tuple[object, ...]:
        return GateFailed, (self.subject, self.problems)


class InputError(RopewalkError):
    """The input is wrong, as opposed to the work failing."""

    exit_status = 2


class InvalidValue(InputError):
    """A value breaks a rule."""

    def __init__(self, key: str, value: object, rule: str, remedy: str) -> None:
        self.key, self.value, self.rule, self.remedy = key, value, rule, remedy
        super().__init__(f"{_clipped(key, SHOWN_KEY)} = {shortened(value)}: {rule}; {remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        return InvalidValue, (self.key, self.value, self.rule, self.remedy)

    def within(self, parent: str) -> InvalidValue:
        """The same error, its key seen from further out (`plan.json: schedules.base`)."""
        joint = "" if self.key.startswith("[") or parent.endswith(": ") else "."
        return InvalidValue(f"{parent}{joint}{self.key}", self.value, self.rule, self.remedy)

    def renamed(self, names: Mapping[str, str]) -> InvalidValue:
        """The same error, its key as the user wrote it, if `names` knows that."""
        name, bracket, place = self.key.partition("[")
        key = f"{names.get(name, name)}{bracket}{place}"
        return InvalidValue(key, self.value, self.rule, self.remedy)


class UnknownName(InputError, ValueError):
    """A name that nothing has, with those that something has."""

    def __init__(self, kind: str, name: object, valid: Iterable[str]) -> None:
        self.kind, self.name, self.valid = kind, name, tuple(valid)
        text = name[:SHOWN_VALUE].lower() if isinstance(name, str) else ""
        close = difflib.get_close_matches(text, self.valid, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        listed = ", ".join(self.valid) if self.valid else "there are none"
        super().__init__(f"unknown {kind} {shortened(name)}{hint}; valid: {listed}")

    def __reduce__(self) -> tuple[object, ...]:
        return UnknownName, (self.kind, self.name, self.valid)


class Unsupported(InputError):
    """The request is understood, and refused with its reason."""


class MissingExtra(Unsupported, ImportError):
    """A package is needed that a plain installation does not bring; or several, as `a, b`."""

    __str__ = Exception.__str__  # an ImportError shows its first words, even if `args` has others

    def __init__(self, what: str, package: str, extra: str) -> None:
        self.what, self.package, self.extra = what, package, extra
        which = "which are" if ", " in package else "which is"
        super().__init__(
            f"{what} needs {package}, {which} not installed: pip install 'ropewalk[{extra}]'"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return MissingExtra, (self.what, self.package, self.extra)


# reprlib never builds the text of what it leaves out: a value may be a whole file.
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = SHOWN_VALUE


def shortened(value: object) -> str:
    """A value as messages show it: never longer than a line, whatever it is."""
    try:
        text = _REPR.repr(value)
    except ValueError:  # Python writes no integer of more than sys.get_int_max_str_digits() digits
        text = f"<{type(value).__name__}>"
    return _clipped(text, SHOWN_VALUE)


def _clipped(text: str, limit: int) -> str:
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


def first_line(error: BaseException) -> str:
    """The first line of another library's message, with the second if it ends in a colon; the
    error's type if there is no message."""
    first, *more = map(str.strip, str(error).strip().splitlines() or [type(error).__name__])
    return f"{first.rstrip(':')}: {more[0]}" if first.endswith(":") and more else first


def printable(text: str, *, keep: str = "") -> str:
    """The text in one line, with escapes for line breaks, terminal codes and lone surrogates.

    Names and values come from files too. Characters of `keep` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
