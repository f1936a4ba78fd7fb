"""The words of a call as values, for the types that need no more than Python itself.

typer converts every word through pydantic, which takes longer to import than numpy. So a word that
is plainly text, a path, a number or one of some choices is converted here. Anything else goes
typer's way, and so do its errors.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args, get_origin


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
