"""A user's own methods, tasks and objectives, each with its name, its origin and a digest.

They are found where ropewalk's own are: by name. A run directory keeps the digest of each one that
its configuration names, and goes on with no other.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, cast

from ropewalk.errors import InputError, InvalidValue, RopewalkError, shortened

F = TypeVar("F", bound=Callable[..., Any])
_MOST_SAID = 500
"""Characters of a user's error that are repeated."""
Kind = Literal["method", "task", "objective"]


@dataclass(frozen=True)
class Registered:
    """Something of the user's, under its name."""

    made: Any
    """The object, like ropewalk's own: a Method, a Task, or a function of measurements."""
    origin: str
    """The name of the file, or of the module if there is none."""
    sha256: str
    """The digest of the file, or of the function's source if there is none, as in a notebook."""


_ALL: dict[Kind, dict[str, Registered]] = {"method": {}, "task": {}, "objective": {}}


def added(kind: Kind) -> Mapping[str, Any]:
    """All of a kind, by name."""
    return {name: each.made for name, each in _ALL[kind].items()}


def add(kind: Kind, name: str, made: Any, code: Callable[..., object]) -> None:
    """Keep something under its name. The same name again replaces it, as in a notebook."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", name):
        rule = "must be a name of small letters, digits, - and _"
        raise InvalidValue(f"name of the {kind}", name, rule, "rename the function")
    _ALL[kind][name] = Registered(made, *_origin_of(code))


def _origin_of(code: Callable[..., object]) -> tuple[str, str]:
    try:
        file = Path(inspect.getsourcefile(code) or "")
        content = file.read_bytes() if file.is_file() else inspect.getsource(code).encode()
    except (OSError, TypeError):
        raise InputError(
            f"{code!r}: has no source code by which a run could recognise it; define it in a "
            "file or in a cell of a notebook"
        ) from None
    origin = file.name if file.is_file() else code.__module__
    return origin, hashlib.sha256(content).hexdigest()


def guarded(kind: Kind, name: str, function: F, returns: type) -> F:
    """The function, with its failures told as the user's own, and its result of this type."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            result = function(*args, **options)
        except (RopewalkError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise InputError(f"{kind} {name}: {_failure(error)}") from error
        if not isinstance(result, returns):
            fault = f"{kind} {name}: returned {shortened(result)}"
            raise InputError(f"{fault}; see `rw.register`")
        return result

    return cast(F, call)


def _failure(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "called sys.exit; leave that to `if __name__ == '__main__':`"
    try:
        text = str(error)[:_MOST_SAID]
    except Exception as fault:  # of its own `__str__`
        text = f"its message failed with {type(fault).__name__}"
    return f"failed with {type(error).__name__}: {text}; fix it"


def load(path: Path) -> None:
    """Run a file of Python code, which registers what it defines."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; give a file of Python code (`plugin`)")
    before = {kind: set(table) for kind, table in _ALL.items()}
    name = f"ropewalk_plugin_{path.stem}"
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = str(path.resolve())
    again = {each for table in _ALL.values() for each in table.values() if each.origin == path.name}
    try:
        # Never from bytecode: a file that is edited twice in a second would be the former one.
        exec(compile(path.read_bytes(), module.__file__, "exec"), module.__dict__)
    except RopewalkError as error:
        raise InputError(f"{path}: {error}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InputError(f"{path}: {_failure(error)}") from error
    if before == {kind: set(table) for kind, table in _ALL.items()} and not again:
        raise InputError(f"{path}: registers nothing; decorate a function with @rw.register(…)")


def code_in(configuration: object) -> dict[str, dict[str, str]]:
    """The origin and the digest of all that a configuration names."""
    words = set(_words(configuration))
    return {
        f"{kind} {name}": {"origin": each.origin, "sha256": each.sha256}
        for kind, table in _ALL.items()
        for name, each in table.items()
        if name in words
    }


def code_of(kind: Kind, name: str) -> dict[str, str]:
    """The provenance, for a plan, of each part of a name that is a user's."""
    return {
        f"code of {part}": f"{code.origin}, SHA-256 {code.sha256}"
        for part in name.split("+")
        if (code := _ALL[kind].get(part)) is not None
    }


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from value.split("+")
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _words(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _words(each)
