"""Reading JSON that may come from anywhere: a plan from a colleague, a config from a hub.

`read_json` bounds what it reads and refuses what JSON parsers quietly let through (duplicate keys,
NaN, 1e999, numbers of a thousand digits, nesting that exhausts the stack). `Fields` then takes the
members of an object one by one, so that what is left over at the end is an unknown key.
Every refusal is an `InvalidValue` with the path of the key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from ropewalk.errors import InputError, InvalidValue

MAX_BYTES = 4 * 2**20
MOST_COUNTED = 100_000  # samples or scores that a command is asked for
MAX_DIGITS = 400  # float64 needs 17; some writers print exact decimals

T = TypeVar("T")


def read_json(path: str | Path, *, max_bytes: int = MAX_BYTES) -> object:
    """The JSON value in a file, or one line that says what is wrong with the file."""
    return parse_json(read_text(path, max_bytes=max_bytes), source=str(path))


def read_text(path: str | Path, *, max_bytes: int = MAX_BYTES) -> str:
    """The text of a file, bounded."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a pipe would wait for ever
            raise InputError(f"{path}: is not a file; check the path")
        # One byte more than allowed: judged by what was read, not by what stat() promised.
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}); check the path") from None
    if len(content) > max_bytes:
        raise InputError(
            f"{path}: larger than the limit of {max_bytes:,} bytes; check that it is the right file"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; check that it is the right file") from None


def parse_json(text: str, *, source: str) -> object:
    """The value of a JSON text; `source` names it in errors."""
    refused: list[_Refused] = []  # numbers: the first is enough, it will be the one reported

    def refuse(digits: str, rule: str, remedy: str) -> _Refused:
        if not refused:
            refused.append(_Refused(digits, rule, remedy))
        return refused[0]

    def number(kind: type[int | float], digits: str) -> object:
        if len(digits) > MAX_DIGITS:
            return refuse(digits, f"has more than {MAX_DIGITS} digits", "round it")
        if math.isinf(float(digits)):  # an integer too: it is computed with
            return refuse(digits, "is too large for float64", "write a finite number")
        return kind(digits)

    def constant(name: str) -> object:
        return refuse(name, "is not JSON", "write a finite number")

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) < len(pairs):
            seen: dict[str, object] = {}
            for key, value in pairs:
                if key in seen:
                    both = [seen[key], value]
                    twice = _Refused(both, "stands twice in one object", "keep one of them")
                    refused.append(twice)
                    result[key] = twice
                    break
                seen[key] = value
        return result

    try:
        value: object = json.loads(
            text,
            parse_int=partial(number, int),
            parse_float=partial(number, float),
            parse_constant=constant,
            object_pairs_hook=members,
        )
        if refused or _SURROGATE.search(text):
            _raise_refusal(value, f"{source}: ")
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source}: is not JSON: {error.msg} at line {error.lineno}, column {error.colno}; "
            "check that it is the right file, and complete"
        ) from None
    except RecursionError:
        raise InputError(
            f"{source}: is nested too deeply; check that it is the right file"
        ) from None
    return value


@dataclass(frozen=True)
class _Refused:
    """Stands in a parsed value for what must not be there, until its path is known."""

    value: object
    rule: str
    remedy: str


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # may be half of a pair, may be alone


def _raise_refusal(value: object, path: str) -> None:
    """Find the first refused part, and name it with its path."""
    if isinstance(value, _Refused):
        raise InvalidValue(path.removesuffix(": "), value.value, value.rule, value.remedy)
    if isinstance(value, str):
        _check_unicode(value, path.removesuffix(": "))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _raise_refusal(item, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            member = _member(path, key)
            _check_unicode(key, member)
            _raise_refusal(item, member)


def _check_unicode(text: str, path: str) -> None:
    """A lone half of a surrogate pair can be written in JSON, but never again to a file."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(
            path, text, "is not valid Unicode", "remove the unpaired surrogate (\\ud800 to \\udfff)"
        ) from None


def _member(path: str, key: str) -> str:
    return f"{path}{key}" if path.endswith(": ") else f"{path}.{key}"


class Fields:
    """The members of one JSON object, taken one by one; `close` refuses what nobody took."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        if not isinstance(value, dict):
            raise InvalidValue(
                path.removesuffix(": "), value, "must be a JSON object", 'write {"key": value, …}'
            )
        self._members: dict[str, object] = dict(value)
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def take(self, key: str) -> object:
        """A member that must be there."""
        self._known.append(key)
        if key not in self._members:
            raise InvalidValue(self.of(key), None, "is missing", "add it")
        return self._members.pop(key)

    def holds(self, key: str) -> bool:
        """True if a member that may be left out is there, to be taken next."""
        if key not in self._members:
            self._known.append(key)
            return False
        return True

    def ignore(self, key: str) -> None:
        """A member that may be there and that nothing depends on."""
        self._known.append(key)
        self._members.pop(key, None)

    def number(self, key: str) -> float:
        return real_number(self.take(key), self.of(key))

    def integer(self, key: str) -> int:
        return whole_number(self.take(key), self.of(key))

    def text(self, key: str) -> str:
        return text_value(self.take(key), self.of(key))

    def items(self, key: str) -> list[object]:
        return list_value(self.take(key), self.of(key))

    def mapping(self, key: str) -> dict[str, object]:
        """An object whose keys are free."""
        return Fields(self.take(key), self.of(key))._members

    def texts(self, key: str) -> dict[str, str]:
        """An object whose keys are free and whose values are strings."""
        fields = Fields(self.take(key), self.of(key))
        return {name: fields.text(name) for name in tuple(fields._members)}

    def of(self, key: str) -> str:
        """The path of a member, as errors name it."""
        return _member(self.path, key)

    def close(self) -> None:
        for key, value in self._members.items():
            raise InvalidValue(
                self.of(key),
                value,
                "is not a known key",
                f"remove it; known: {', '.join(self._known)}",
            )

    def build(self, make: Callable[..., T], **values: object) -> T:
        """`make(**values)` once every member is taken; a broken rule is named with its path."""
        self.close()
        try:
            return make(**values)
        except InvalidValue as error:
            raise error.within(self.path) from None


def real_number(value: object, path: str) -> float:
    """A finite number. JSON has one number type, so 1 stands for 1.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        remedy = "give float(…) of it" if hasattr(value, "dtype") else "write it without quotes"
        raise InvalidValue(path, value, "must be a number", remedy)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValue(path, value, "must be a finite number", "write digits, as in 0.5")
    return number


def real_numbers(value: object, path: str) -> list[float]:
    return [
        # The path costs more than the check, and there may be half a million numbers.
        item if type(item) is float and math.isfinite(item) else real_number(item, f"{path}[{i}]")
        for i, item in enumerate(list_value(value, path))
    ]


def list_value(value: object, path: str) -> list[object]:
    if not isinstance(value, list):
        raise InvalidValue(path, value, "must be a list", "write [a, b, …]")
    return value


def text_value(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(path, value, "must be a string", "write it in quotes")
    return value


def truth_value(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(path, value, "must be true or false", "write it without quotes")
    return value


def whole_number(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        remedy = "give int(…) of it" if hasattr(value, "dtype") else "write only digits"
        raise InvalidValue(path, value, "must be a whole number", remedy)
    return value


def whole_numbers(value: object, path: str) -> list[int]:
    return [whole_number(item, f"{path}[{i}]") for i, item in enumerate(list_value(value, path))]


def counted(value: object, key: str, most: int) -> int:
    """A whole number from 1 to `most`."""
    count = whole_number(value, key)
    check_between(count, 1, most, key, "correct it")
    return count


def check_count(value: object, key: str, usual: int = 20) -> None:
    """Refuse a number of samples or scores that nobody means."""
    count = whole_number(value, key)
    check_between(count, 1, MOST_COUNTED, key, f"{usual:,} is a usual number", f"{MOST_COUNTED:,}")


def check_between(
    value: float, least: int, most: float, key: str, remedy: str, shown: str = ""
) -> None:
    """Refuse a number outside a range; `shown`: its upper end as people write it."""
    if not least <= value <= most:
        rule = f"must lie between {least} and {shown or f'{most:.15g}'}"
        raise InvalidValue(key, value, rule, remedy)


def check_seed(value: object) -> None:
    """numpy's generators take no negative seed."""
    if whole_number(value, "seed") < 0:
        raise InvalidValue("seed", value, "must be at least 0", "give another")


def one_of(value: object, valid: Sequence[str], path: str) -> None:
    if not isinstance(value, str) or value not in valid:
        raise InvalidValue(path, value, "is not one of the choices", f"choose {' or '.join(valid)}")
