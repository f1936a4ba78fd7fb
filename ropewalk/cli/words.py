"""The words of a call: slips of the keyboard, words of other tools, and their conversion to values.

Only words that the parser would refuse are replaced, so no call changes its meaning.

typer converts every word through pydantic, which takes longer to import than numpy. So a word that
is plainly text, a path, a number or one of some choices is converted here. Anything else goes the
way of typer, and so do its errors.

Errors name the parameters of Python functions, and a command replaces them by its options:

in Python     give longer documents (`corpus`)      samples = 0: must be at least 1
in a shell    give longer documents (--corpus)      --samples = 0: must be at least 1
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ropewalk.errors import InputError, InvalidValue, RopewalkError

_SAME: dict[str, str] = json.loads(
    Path(__file__).with_name("same_options.json").read_text(encoding="utf-8")
)
"""Options of other tools and of other verbs, by the option that they stand for."""
_NAMES = ("--method", "--runtime", "--recipe", "--tasks", "--arms", "--strategy", "--device")
"""Options whose values are names in small letters."""


def verb_meant(arguments: Sequence[str]) -> list[str]:
    """The arguments of the whole call: `help plan`, `version`, `-h`."""
    first, rest = (arguments[0] if arguments else ""), list(arguments[1:])
    if first == "help":
        return [*rest, "--help"]
    if first in ("-h", "version", "-V"):
        return ["--help" if first == "-h" else "--version", *rest]
    return [first.lower(), *rest] if first.isalpha() else list(arguments)


def options_meant(arguments: Sequence[str], options: Collection[str], *, model: bool) -> list[str]:
    """The arguments of a verb with these options; `model`: its first argument is one."""
    result: list[str] = []
    for word, after in zip_longest(arguments, arguments[1:], fillvalue=""):
        before = result[-1] if result else ""
        name, equals, value = word.partition("=")
        if before in _NAMES and before in options:
            result.append(_name(before, word))
        elif word == "-h":
            result.append("--help")
        elif word == "to" and "--to" in options and not before.startswith("-"):
            result.append("--to")
        elif not name.startswith("--"):
            result.append(word)
        elif model and name.lower() == "--model" and name not in options:
            result += [value] if equals else []  # the model is an argument: its value stands alone
        else:
            option = name if name in options else _similar(name, value or after, options)
            result.append(f"{option}{equals}{_name(option, value)}")
    return result


def _name(option: str, word: str) -> str:
    """The value of an option, which may be a name."""
    if option not in _NAMES:
        return word
    small = word.lower()
    return small.replace("-", "_") if option == "--method" else small


def _similar(name: str, value: str, options: Collection[str]) -> str:
    """An unknown option, as one of these; itself if nothing is like it."""
    key = name.removeprefix("--").lower().replace("_", "-")
    joined = {option.replace("-", ""): option for option in options}
    option = f"--{key}" if f"--{key}" in options else joined.get(key.replace("-", ""))
    option = option or _SAME.get(key)
    if option in options:
        return str(option)
    if "--set" in options:
        from ropewalk.scaling import parameter_names

        if (key := key.replace("-", "_")) in parameter_names():
            raise InputError(
                f"{name}: is a parameter of a method, not an option; write --set "
                f"{key}={value or 'VALUE'}"
            )
    return name


def understood_at_once(parameters: list[Any]) -> list[Any]:
    """The same parameters of typer, with this way of conversion.

    It stands where typer keeps its own converter from the first use on. Where another version of
    typer keeps it elsewhere, that version converts all words.
    """
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", ...) is None:
            parameter._runtime_param = _Words()
    return parameters


# What typer checks beyond the type, and how an option says that it demands none of it.
_DEMANDS = {
    **dict.fromkeys(("min", "max", "parser", "path_type"), None),
    **dict.fromkeys(("clamp", "exists", "writable", "resolve_path", "allow_dash"), False),
    **dict.fromkeys(("file_okay", "dir_okay", "readable"), True),
}


class _Words:
    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            declared = param.type_descriptor
            if any(getattr(declared.parameter_info, key) != none for key, none in _DEMANDS.items()):
                raise ValueError
            return as_type(value, declared.annotation)
        except (AttributeError, TypeError, ValueError):
            param._runtime_param = None  # typer's own from here on
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def as_type(value: object, annotation: Any) -> object:
    """The value in this type; a ValueError or TypeError if that takes more than a look."""
    if get_origin(annotation) is list and isinstance(value, list | tuple):
        [each] = get_args(annotation)
        return [as_type(item, each) for item in value]
    if get_origin(annotation) is Literal:
        choices = {str(choice).lower(): choice for choice in get_args(annotation)}
        if isinstance(value, str) and value.lower() in choices:
            return choices[value.lower()]
    if annotation in (int, float) and type(value) is annotation:
        return value
    if not isinstance(value, str | Path):
        raise TypeError
    if annotation is str:
        return str(value)
    if annotation is Path and (not os.access(value, os.F_OK) or os.access(value, os.R_OK)):
        return Path(value)
    if annotation in (int, float):
        return annotation(value)
    raise ValueError


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
