"""Arguments of verbs as values: lengths, lists, names and paths, as people write them."""

from __future__ import annotations

import errno
import os
from collections.abc import Hashable, Iterable, Mapping
from numbers import Integral
from pathlib import Path
from typing import TypeAlias, TypeVar

from ropewalk.errors import InvalidValue
from ropewalk.lengths import check_measured, parse_length, parse_lengths

T = TypeVar("T")

Length: TypeAlias = int | str
"""131072 or "128k"."""
_DEEPEST = 500
"""Folders of a path."""


def as_length(value: Length, key: str = "length") -> int:
    """The number of tokens that `131072` or `"128k"` stands for."""
    if isinstance(value, bool) or not isinstance(value, Integral | str):
        raise InvalidValue(key, value, "must be a length", "write 131072 or '128k'")
    try:
        return parse_length(str(value))
    except InvalidValue as error:
        raise InvalidValue(key, value, error.rule, error.remedy) from None


def as_measured(value: Length, key: str) -> int:
    """The same, of a length that a model is run on."""
    length = as_length(value, key)
    check_measured(length, key)
    return length


def as_list(values: Iterable[T], key: str) -> tuple[T, ...]:
    """The given values, each once."""
    return tuple(dict.fromkeys(as_members(values, key)))


def as_members(values: Iterable[T], key: str) -> tuple[T, ...]:
    """The given values. A string is refused: it would be taken for its letters."""
    try:
        members = tuple(values)
    except TypeError:  # an array of no dimension says that it is iterable
        members = None
    if members is None or isinstance(values, str | bytes | Mapping):
        raise InvalidValue(key, values, "must be a list", "write [a, b, …]")
    for i, member in enumerate(members):
        if not isinstance(member, Hashable):
            raise InvalidValue(f"{key}[{i}]", member, "is a list in a list", "write [a, b, …]")
    return members


def as_lengths(values: Iterable[Length], key: str = "lengths") -> tuple[int, ...]:
    """Lengths in rising order, each once; `1k … 8k` stands for the doublings between."""
    items = as_list(values, key)
    if {"…", "..."} & set(items):
        return tuple(sorted(set(parse_lengths([str(value) for value in items]))))
    return tuple(sorted({as_length(value, key) for value in items}))


def as_name(value: object, key: str) -> str:
    """The name of a served model."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue(key, value, "must be a name", "write it as the server lists it")
    return value


def as_path(value: str | Path, key: str) -> Path:
    """A path. An empty text is refused: to the system, it is the current folder. So is what the
    system never follows: a link in a circle, and too long a name."""
    if not isinstance(value, str | Path) or "\0" in str(value):
        raise InvalidValue(key, value, "must be a path", "write 'folder/name'")
    if not str(value).strip():
        raise InvalidValue(key, value, "must not be empty", "write '.' for the current folder")
    path = Path(value)
    try:
        if len(path.parts) > _DEEPEST:  # Python makes folders by recursion
            raise OSError(errno.ENAMETOOLONG, f"more than {_DEEPEST} folders")
        os.stat(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            rule = f"leads nowhere ({error.strerror})"
            raise InvalidValue(key, str(path), rule, "give another path") from None
    return path
