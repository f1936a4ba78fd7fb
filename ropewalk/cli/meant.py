"""Words of other tools and slips of the keyboard: what a call meant by them, or what to write.

Only words that the parser would refuse are looked at, so no call changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import zip_longest
from pathlib import Path

from ropewalk.errors import InputError

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
    found: list[str] = []
    for word, after in zip_longest(arguments, arguments[1:], fillvalue=""):
        before = found[-1] if found else ""
        name, equals, value = word.partition("=")
        if before in _NAMES and before in options:
            found.append(_name(before, word))
        elif word == "-h":
            found.append("--help")
        elif word == "to" and "--to" in options and not before.startswith("-"):
            found.append("--to")
        elif not name.startswith("--"):
            found.append(word)
        elif model and name.lower() == "--model" and name not in options:
            found += [value] if equals else []  # the model is an argument: its value stands alone
        else:
            option = name if name in options else _option(name, value or after, options)
            found.append(f"{option}{equals}{_name(option, value)}")
    return found


def _name(option: str, word: str) -> str:
    """The value of an option, which may be a name."""
    if option not in _NAMES:
        return word
    small = word.lower()
    return small.replace("-", "_") if option == "--method" else small


def _option(name: str, value: str, options: Collection[str]) -> str:
    """An unknown option, as one of these; itself if nothing is like it."""
    key = name.removeprefix("--").lower().replace("_", "-")
    joined = {option.replace("-", ""): option for option in options}
    meant = f"--{key}" if f"--{key}" in options else joined.get(key.replace("-", ""))
    meant = meant or _SAME.get(key)
    if meant in options:
        return str(meant)
    if "--set" in options:
        from ropewalk.scaling import parameter_names

        if (key := key.replace("-", "_")) in parameter_names():
            raise InputError(
                f"{name}: is a parameter of a method, not an option; write --set "
                f"{key}={value or 'VALUE'}"
            )
    return name
