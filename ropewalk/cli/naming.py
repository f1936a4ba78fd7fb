"""Replaces the names of a Python function's parameters in errors by the command's options.

in Python     give longer documents (`corpus`)      samples = 0: must be at least 1
in a shell    give longer documents (--corpus)      --samples = 0: must be at least 1
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ropewalk.errors import InvalidValue, RopewalkError

# What errors name that is no parameter of a verb; parameters are known by their options.
_OTHERWISE = {"preview": "dry_run", "target_length": "to", "run": "output"}
_OPTIONS: ContextVar[Mapping[str, str] | None] = ContextVar("options", default=None)


@contextmanager
def options_named(parameters: Iterable[Any]) -> Iterator[None]:
    """Raise the errors of a command with these parameters again, in its words."""
    outside = _OPTIONS.set(dict(_options(parameters)))
    try:
        yield
    except RopewalkError as error:
        text = in_options(str(error))
        if isinstance(error, InvalidValue) and not re.search(r"/|: ", error.key):  # of a file
            text = re.sub(r"^\w+", lambda key: _option(key[0]) or key[0], text)
        error.args = (text,)
        raise
    finally:
        _OPTIONS.reset(outside)


def in_options(text: str, options: Mapping[str, str] | None = None) -> str:
    """A text of the package, with these options, or else for users of the command that runs."""
    option = _option if options is None else options.get
    return re.sub(r"`(\w+)`", lambda name: option(name[1]) or name[0], text)


def _option(parameter: str) -> str | None:
    """The option that stands for a parameter; None if there is none."""
    options = _OPTIONS.get() or {}
    return options.get(parameter) or options.get(_OTHERWISE.get(parameter, ""))


def _options(parameters: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            yield parameter.name, (parameter.metavar or "").strip("[]…")
        for option in parameter.opts:
            if option.startswith("--"):
                yield option.removeprefix("--").replace("-", "_"), option
                yield parameter.name, option
